//! The program: arguments, then [`pagetide::app`].

use std::process::ExitCode;

use clap::Parser;
use pagetide::config::{Cli, Command};
use pagetide::{app, http, telemetry};

/// A request is a hundred small allocations, made on one thread and given back on another, which is
/// what this allocator is made for; it also gives memory back to the system after a flood.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error),
    };
    let code = runtime.block_on(run(Cli::parse()));
    // Whatever still blocks, such as the opening of a pipe to which nobody writes, is left behind.
    runtime.shutdown_background();
    code
}

async fn run(cli: Cli) -> ExitCode {
    let command = cli.command.unwrap_or(Command::Serve(cli.serve));
    let done: Result<(), Box<dyn std::error::Error + Send + Sync>> = match command {
        Command::Serve(config) => app::serve(config).await.map_err(Into::into),
        Command::Migrate(config) => app::migrate(&config).await.map_err(Into::into),
        Command::Consume(config) => Box::pin(app::consume(config)).await.map_err(Into::into),
        Command::Import(config) => Box::pin(app::import(config)).await.map_err(Into::into),
        Command::Recount(config) => Box::pin(app::recount(config)).await.map_err(Into::into),
        Command::Token(command) => Box::pin(app::token(command)).await.map_err(Into::into),
        Command::Demo(config) => Box::pin(app::demo(config)).await.map_err(Into::into),
        Command::Openapi => print_openapi(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&*error),
    }
}

#[allow(clippy::print_stdout, reason = "this is what the command says")]
fn print_openapi() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    print!("{}", http::openapi::yaml()?);
    Ok(())
}

#[allow(clippy::print_stderr, reason = "the log may not be there to take it")]
fn complain(error: &(dyn std::error::Error + Send + Sync + 'static)) -> ExitCode {
    eprintln!("pagetide: {}", telemetry::chain(error));
    ExitCode::FAILURE
}
