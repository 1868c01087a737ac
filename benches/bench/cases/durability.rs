//! No figure here is bought with durability: what Postgres promises, asked of itself; and that an
//! acknowledged click is there after a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::{PgConnection, Row};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::Error;
use crate::context::Context;
use crate::load::answers::{Answers, send};
use crate::report::{Figure, Samples, Target};
use crate::service::{Database, Server, counting_book};

/// Connections that send clicks, one a request.
const CONNECTIONS: usize = 32;

/// Fails unless an acknowledgement means that it is on the disk.
pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let database = Database::start(context).await?;
    // What it has to say about the crash is known.
    let server = Server::start(&database, &[("PAGETIDE_LOG", "off")]).await?;
    check_settings(&mut database.connect().await?).await?;
    server.put_book("book", &counting_book()).await?;
    let token = server.token("write").await?;

    let enough = Arc::new(Enough {
        left: AtomicUsize::new(if context.quick { 5000 } else { 50_000 }),
        reached: Notify::new(),
    });
    let mut senders = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(&server.address).await?;
        senders.spawn(send_until_refused(
            stream,
            token.clone(),
            Arc::clone(&enough),
        ));
    }
    enough.reached.notified().await;
    let crashed = database.crash().await?;
    let mut acknowledged = Vec::new();
    while let Some(ids) = senders.join_next().await {
        acknowledged.extend(ids??);
    }
    // What it had not committed must not be committed by it now.
    server.kill().await?;

    let database = crashed.recover().await?;
    let mut conn = database.connect().await?;
    let missing = sqlx::query(
        "SELECT count(*) FROM unnest($1::uuid[]) AS a(id)
         WHERE NOT EXISTS (SELECT FROM clicks WHERE click_id = a.id)",
    );
    let missing: i64 = missing
        .bind(&acknowledged)
        .fetch_one(&mut conn)
        .await?
        .get(0);
    let uncounted = "SELECT (SELECT count(*) FROM clicks)::bigint
                            - (SELECT coalesce(sum(weight), 0) FROM windows)::bigint";
    let uncounted: i64 = sqlx::query(uncounted).fetch_one(&mut conn).await?.get(0);
    drop(conn);
    database.stop().await?;
    #[allow(clippy::cast_precision_loss, reason = "some thousands")]
    let figure = |name: &str, count: i64, target| Figure {
        name: format!("after a crash of Postgres, {name}"),
        unit: "",
        value: Samples(vec![count as f64]),
        beside: None,
        target,
    };
    let none = Some(Target::ValueAtMost(0.0));
    let acknowledged = i64::try_from(acknowledged.len())?;
    Ok(vec![
        figure("clicks acknowledged before", acknowledged, None),
        figure("of them missing", missing, none),
        figure(
            "clicks logged and not counted, or the reverse",
            uncounted.abs(),
            none,
        ),
    ])
}

/// Fails unless Postgres writes to the disk before it says that it has.
async fn check_settings(conn: &mut PgConnection) -> Result<(), Error> {
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        let row = sqlx::query("SELECT current_setting($1)").bind(setting);
        let value: String = row.fetch_one(&mut *conn).await?.get(0);
        if value != "on" {
            return Err(format!("{setting} is {value}").into());
        }
    }
    Ok(())
}

/// Tells when so many clicks have been acknowledged.
struct Enough {
    left: AtomicUsize,
    reached: Notify,
}

/// Sends clicks until one is not acknowledged as committed; gives the ids of those that were.
async fn send_until_refused(
    mut stream: TcpStream,
    token: String,
    enough: Arc<Enough>,
) -> Result<Vec<Uuid>, Error> {
    let mut answers = Answers::default();
    let mut acknowledged = Vec::new();
    loop {
        let id = Uuid::now_v7();
        let body = format!(r#"{{"id":"{id}","page":"/guide/chapter-001"}}"#);
        let head = format!(
            "POST /v1/books/book/clicks HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        send(&mut stream, [head.as_bytes(), body.as_bytes()]).await?;
        if answers.next(&mut stream).await?.status != 200 {
            return Ok(acknowledged);
        }
        acknowledged.push(id);
        if enough.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            enough.reached.notify_one();
        }
    }
}
