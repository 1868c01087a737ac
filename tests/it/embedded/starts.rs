//! It comes up, goes down, and is recovered.

use serde_json::json;

use super::*;
use crate::harness::{Api, Server};

#[tokio::test]
async fn data_outlives_a_stop() {
    let scratch = Scratch::new();
    // Folders above the data folder are created too.
    let data = scratch.0.join("some/where");

    let server = start(&data).await;
    let description = server.describe();
    let cluster = data.join("postgres");
    assert!(
        description.contains(cluster.to_str().unwrap()),
        "{description}"
    );
    assert!(!description.contains('\n'), "{description}");
    assert_eq!(fs::metadata(&cluster).unwrap().mode() & 0o777, 0o700);
    let socket_folder = socket_folder(&server);
    assert_eq!(fs::metadata(&socket_folder).unwrap().mode() & 0o777, 0o700);
    assert_eq!(
        fs::metadata(&socket_folder).unwrap().uid(),
        fs::metadata(&cluster).unwrap().uid()
    );
    if are_root(&scratch) {
        assert_ne!(fs::metadata(&cluster).unwrap().uid(), 0);
    }
    write_note(&server).await;
    let pid = server.pid().unwrap();
    server.stop().await.unwrap();
    assert!(!runs(pid));
    assert!(!socket_folder.exists());

    let server = start(&data).await;
    assert_eq!(read_note(&server).await, "still here");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_server_is_set_up_as_promised() {
    let scratch = Scratch::new();
    let server = start(&scratch.data()).await;
    let mut connection = connect(&server).await;
    for (setting, value) in [
        ("listen_addresses", ""),
        ("unix_socket_permissions", "0700"),
        ("max_connections", "100"),
        ("shared_buffers", "128MB"),
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("jit", "off"),
        ("logging_collector", "off"),
        ("log_min_messages", "warning"),
        ("data_checksums", "on"),
        ("server_encoding", "UTF8"),
    ] {
        let actual: String = sqlx::query_scalar("SELECT current_setting($1)")
            .bind(setting)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(actual, value, "{setting}");
    }
    let (database, collation): (String, String) = sqlx::query_as(
        "SELECT datname::text, datcollate::text FROM pg_database WHERE datname = current_database()",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!((database.as_str(), collation.as_str()), ("pagetide", "C"));
    connection.close().await.unwrap();

    // A Ctrl-C goes to our process group; the postmaster leads its own.
    let pid = server.pid().unwrap();
    let group = Command::new("ps")
        .args(["-o", "pgid=", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let group = String::from_utf8(group.stdout).unwrap();
    assert_eq!(group.trim(), pid.to_string());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_does_not_wait_for_open_connections() {
    let scratch = Scratch::new();
    let server = start(&scratch.data()).await;
    write_note(&server).await;
    let mut connection = connect(&server).await;
    let mut transaction = connection.begin().await.unwrap();
    transaction.execute("DELETE FROM note").await.unwrap();
    server.stop().await.unwrap();

    let server = start(&scratch.data()).await;
    assert_eq!(read_note(&server).await, "still here");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_killed_postmaster_is_noticed_and_recovered_from() {
    let scratch = Scratch::new();
    let mut server = start(&scratch.data()).await;
    write_note(&server).await;

    // A backend that is too busy to see its postmaster go, and holds on to
    // the shared memory meanwhile.
    let mut busy = connect(&server).await;
    let busy = tokio::spawn(async move {
        busy.execute(
            "DO $$ DECLARE since timestamptz := clock_timestamp(); BEGIN \
             WHILE clock_timestamp() < since + interval '6 seconds' LOOP END LOOP; END $$",
        )
        .await
    });
    let mut connection = connect(&server).await;
    until("the backend is busy", async || {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %')",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap()
    })
    .await;

    assert!(signal("KILL", server.pid().unwrap()));
    let status = server.wait().await.unwrap();
    assert_eq!(status.signal(), Some(9));
    assert_eq!(server.pid(), None);
    assert_eq!(server.wait().await.unwrap(), status);
    server.stop().await.unwrap();

    let server = start(&scratch.data()).await;
    assert_eq!(read_note(&server).await, "still here");
    let log = fs::read_to_string(scratch.data().join("postgres.log")).unwrap();
    assert!(log.contains("pre-existing shared memory block"), "{log}");
    server.stop().await.unwrap();
    let _ = busy.await.unwrap();
}

#[tokio::test]
async fn dropping_the_server_ends_it() {
    let scratch = Scratch::new();
    let server = start(&scratch.data()).await;
    write_note(&server).await;
    let pid = server.pid().unwrap();
    drop(server);

    // At once, while the old one may not have ended yet.
    let server = start(&scratch.data()).await;
    assert!(!runs(pid));
    assert_eq!(read_note(&server).await, "still here");
    let pid = server.pid().unwrap();
    drop(server);
    until("the dropped server has ended", async || !runs(pid)).await;
    start(&scratch.data()).await.stop().await.unwrap();
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_no_server() {
    let scratch = Scratch::new();
    let server = start(&scratch.data()).await;
    write_note(&server).await;
    server.stop().await.unwrap();

    let data = scratch.data();
    let starting = tokio::spawn(async move { start(&data).await });
    let file = scratch.cluster().join("postmaster.pid");
    let mut pid = None;
    until("the postmaster has begun", async || {
        pid = fs::read_to_string(&file)
            .ok()
            .and_then(|content| content.lines().next()?.parse().ok());
        pid.is_some()
    })
    .await;
    starting.abort();
    drop(starting.await);
    until("the postmaster has ended", async || !runs(pid.unwrap())).await;

    let server = start(&scratch.data()).await;
    assert_eq!(read_note(&server).await, "still here");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_outlived_its_parent_is_replaced() {
    let scratch = Scratch::new();
    let mut command = Server::command();
    command.env("PAGETIDE_DATA_DIR", scratch.data());
    let server = Server::spawn(command).await;
    let token = fs::read_to_string(scratch.data().join("admin-token")).unwrap();
    let api = Api::new(&server.url, token.trim());
    api.book("mine", json!({"title": "still here"})).await;
    let pid_file = fs::read_to_string(scratch.cluster().join("postmaster.pid")).unwrap();
    let orphan: u32 = pid_file.lines().next().unwrap().parse().unwrap();

    // A second process is refused, and the message says who has the folder.
    let message = refusal(&scratch.data()).await.to_string();
    let holder = format!("process {}", server.pid());
    assert!(message.contains(&holder), "{message}");

    server.signal("KILL");
    assert!(!server.ended().await.success());
    assert!(runs(orphan));

    let mut command = Server::command();
    command.env("PAGETIDE_DATA_DIR", scratch.data());
    let server = Server::spawn(command).await;
    assert!(!runs(orphan));
    let printed = server.said.iter().any(|line| line.contains("admin token"));
    assert!(!printed, "a second start shows no token: {:?}", server.said);
    let api = Api::new(&server.url, token.trim());
    let book = api.get("/v1/books/mine").await.expect(200);
    assert_eq!(book["title"], "still here");
    assert!(server.terminate().await.success());
}

#[tokio::test]
async fn a_stale_process_id_harms_no_one() {
    let scratch = Scratch::new();
    let mut server = start(&scratch.data()).await;
    write_note(&server).await;
    let socket_lock = socket_folder(&server).join(".s.PGSQL.5432.lock");
    let pid_file = scratch.cluster().join("postmaster.pid");
    assert!(signal("KILL", server.pid().unwrap()));
    server.wait().await.unwrap();
    drop(server);

    // The dead postmaster's id has gone to a process of the same user, which
    // Postgres by itself would take for a postmaster.
    let bystander = Bystander::next_to(&scratch.cluster(), &scratch);
    for file in [&pid_file, &socket_lock] {
        let content = fs::read_to_string(file).unwrap();
        let (_, rest) = content.split_once('\n').unwrap();
        fs::write(file, format!("{}\n{rest}", bystander.0.id())).unwrap();
    }
    let server = start(&scratch.data()).await;
    assert!(runs(bystander.0.id()));
    assert_eq!(read_note(&server).await, "still here");
    server.stop().await.unwrap();

    // And what a power cut may leave of it.
    fs::write(&pid_file, "").unwrap();
    start(&scratch.data()).await.stop().await.unwrap();
}
