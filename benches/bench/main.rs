//! Speed, measured against its limits: `make bench`, or `make bench-quick` in a few minutes.
//!
//! Each figure stands beside its limit or a peer that was measured in the same run on the same
//! machine, in turns with it; times alone mean nothing on a busy machine. The program is the release
//! build, over the Postgres that it would bring up itself, durable as always, on the real disk; the
//! load is made on the same cores.
//!
//! A new case is a module in `cases` and a line in [`CASES`].

#![allow(
    clippy::cast_precision_loss,
    reason = "no figure here has as many digits"
)]

mod cases;
mod context;
mod cpu;
mod fill;
mod http;
mod limits;
mod load;
mod pace;
mod peers;
mod readers;
mod report;
mod service;
mod turns;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;

use clap::Parser;

use context::Context;
use peers::own::Role;
use report::{Figure, Report};

/// The allocator of the program, so that the engine and the peers that run in this process allocate as it
/// does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What goes wrong in a bench ends it, in words.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// The figures of a case.
type Figures<'a> = Pin<Box<dyn Future<Output = Result<Vec<Figure>, Error>> + 'a>>;

/// A case by its name.
type Case = (&'static str, fn(&Context) -> Figures<'_>);

/// All cases, in the order of the table.
const CASES: &[Case] = &[
    ("durability", |c| Box::pin(cases::durability::run(c))),
    ("ingest_batched", |c| {
        Box::pin(cases::ingest_batched::run(c))
    }),
    ("ingest_many_books", |c| {
        Box::pin(cases::ingest_many_books::run(c))
    }),
    ("ingest_single", |c| Box::pin(cases::ingest_single::run(c))),
    ("ingest_naive", |c| Box::pin(cases::ingest_naive::run(c))),
    ("latency", |c| Box::pin(cases::latency::run(c))),
    ("engine", |c| Box::pin(cases::engine::run(c))),
    ("growth", |c| Box::pin(cases::growth::run(c))),
    ("plans", |c| Box::pin(cases::plans::run(c))),
    ("memory", |c| Box::pin(cases::memory::run(c))),
    ("recount", |c| Box::pin(cases::recount::run(c))),
    ("import", |c| Box::pin(cases::import::run(c))),
    ("fan_out", |context| Box::pin(cases::fan_out::run(context))),
    ("many_streams", |context| {
        Box::pin(cases::many_streams::run(context))
    }),
    ("resume_storm", |context| {
        Box::pin(cases::resume_storm::run(context))
    }),
    ("resume_horizon", |context| {
        Box::pin(cases::resume_horizon::run(context))
    }),
];

/// Measures the program against its limits.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// What the bench starts itself as.
    #[command(subcommand)]
    role: Option<Role>,
    /// Short runs, few of them, and small tables.
    #[arg(long)]
    quick: bool,
    /// Cases to run [default: all].
    cases: Vec<String>,
    /// What cargo says to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let measured = runtime.map_err(Error::from).and_then(|runtime| {
        runtime.block_on(async {
            match arguments.role.clone() {
                Some(role) => role.play().await,
                None => measure(&arguments).await,
            }
        })
    });
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::say(&format!("the bench failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: &Arguments) -> Result<(), Error> {
    let wanted =
        |name: &str| arguments.cases.is_empty() || arguments.cases.iter().any(|c| c == name);
    if let Some(unknown) = arguments
        .cases
        .iter()
        .find(|wanted| CASES.iter().all(|(name, _)| name != wanted))
    {
        return Err(format!("there is no case `{unknown}`").into());
    }
    let context = Context::new(arguments.quick)?;
    let mut report = Report::default();
    for (name, case) in CASES.iter().filter(|(name, _)| wanted(name)) {
        report::say(&format!("{name} …"));
        for figure in case(&context).await? {
            report::say(&figure.line());
            report.figures.push(figure);
        }
        // What is there stays, if a later case fails.
        report.write(Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench/results.json"))?;
    }
    report::say(&report.table());
    Ok(())
}
