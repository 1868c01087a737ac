//! What it does not do, and how it says so.

use super::*;

#[tokio::test]
async fn a_second_server_on_the_folder_is_refused() {
    let scratch = Scratch::new();
    let server = start(&scratch.data()).await;
    let error = refusal(&scratch.data()).await;
    assert!(matches!(error, EmbeddedError::Locked { .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains(scratch.data().to_str().unwrap()),
        "{message}"
    );
    assert!(
        message.contains(&format!("process {}", std::process::id())),
        "{message}"
    );
    // The one that was there first is none the worse for it.
    write_note(&server).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_folder_that_the_unprivileged_user_cannot_reach_is_refused() {
    let scratch = Scratch::new();
    if !are_root(&scratch) {
        return;
    }
    let barrier = scratch.0.join("private");
    fs::create_dir(&barrier).unwrap();
    fs::set_permissions(&barrier, fs::Permissions::from_mode(0o700)).unwrap();
    let data = barrier.join("a/b");

    let error = refusal(&data).await;
    let EmbeddedError::Unreachable {
        barrier: named,
        folder,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!((named, folder), (&barrier, &data));
    assert!(error.to_string().contains("PAGETIDE_DATA_DIR"), "{error}");
    assert!(!data.join("postgres").exists());

    // What the message advises does help.
    fs::set_permissions(&barrier, fs::Permissions::from_mode(0o701)).unwrap();
    start(&data).await.stop().await.unwrap();
}

#[tokio::test]
async fn an_interrupted_initdb_leaves_no_cluster() {
    let scratch = Scratch::new();
    let unfinished = || {
        let entries = fs::read_dir(scratch.data()).into_iter().flatten();
        let mut names = entries.map(|entry| entry.unwrap().path());
        names.find(|path| path.to_string_lossy().contains("postgres.unfinished"))
    };

    let data = scratch.data();
    let starting = tokio::spawn(async move { start(&data).await });
    until("initdb is half way", async || {
        unfinished().is_some_and(|folder| folder.join("base/1/PG_VERSION").exists())
    })
    .await;
    starting.abort();
    assert!(starting.await.unwrap_err().is_cancelled());
    assert!(!scratch.cluster().exists());

    let server = start(&scratch.data()).await;
    write_note(&server).await;
    server.stop().await.unwrap();
    // By now nothing writes to the remains any more, so that they must go.
    let server = start(&scratch.data()).await;
    assert_eq!(unfinished(), None);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn no_binaries_at_all_is_a_clear_error() {
    let scratch = Scratch::new();
    let nowhere = BinarySearch {
        folders: vec![scratch.0.clone()],
        fetch: false,
    };
    let error = Embedded::start_with(&scratch.data(), &nowhere)
        .await
        .unwrap_err();
    assert!(
        matches!(error, EmbeddedError::NoBinaries { source: None }),
        "{error}"
    );
    let message = error.to_string();
    assert!(message.contains("14 or newer"), "{message}");
    assert!(message.contains("DATABASE_URL"), "{message}");
}

#[tokio::test]
async fn binaries_fetched_by_an_earlier_start_are_used() {
    let scratch = Scratch::new();
    let installed = installed()
        .folders
        .into_iter()
        .find(|folder| folder.join("initdb").exists())
        .unwrap();
    // As good as a copy: Postgres follows the link to find its other files.
    let kept = scratch.data().join("postgres-binaries/17.0.0");
    fs::create_dir_all(&kept).unwrap();
    symlink(installed, kept.join("bin")).unwrap();

    let nowhere = BinarySearch {
        folders: Vec::new(),
        fetch: false,
    };
    let server = Embedded::start_with(&scratch.data(), &nowhere)
        .await
        .unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_cluster_of_a_version_that_is_not_here_is_left_alone() {
    let scratch = Scratch::new();
    start(&scratch.data()).await.stop().await.unwrap();
    let version = scratch.cluster().join("PG_VERSION");
    fs::write(&version, "99\n").unwrap();

    let error = refusal(&scratch.data()).await;
    let EmbeddedError::WrongBinaries {
        cluster: 99,
        found: Some(found),
        ..
    } = &error
    else {
        panic!("{error}")
    };
    let message = error.to_string();
    assert!(message.contains("PostgreSQL 99"), "{message}");
    assert!(
        message.contains(&format!("PostgreSQL {found}")),
        "{message}"
    );
    assert_eq!(fs::read_to_string(&version).unwrap(), "99\n");
}

#[tokio::test]
async fn what_is_no_cluster_is_left_alone() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.cluster()).unwrap();
    fs::write(scratch.cluster().join("thesis.txt"), "precious").unwrap();
    let error = refusal(&scratch.data()).await;
    assert!(
        matches!(error, EmbeddedError::NotACluster { .. }),
        "{error}"
    );
    assert!(scratch.cluster().join("thesis.txt").exists());
}

#[tokio::test]
async fn a_cluster_of_another_user_is_refused() {
    let scratch = Scratch::new();
    if !are_root(&scratch) {
        return;
    }
    start(&scratch.data()).await.stop().await.unwrap();
    lchown(scratch.cluster(), Some(0), Some(0)).unwrap();
    let error = refusal(&scratch.data()).await;
    assert!(
        matches!(error, EmbeddedError::ForeignCluster { uid: 0, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_socket_folder_that_is_not_ours_is_refused() {
    let scratch = Scratch::new();
    let server = start(&scratch.data()).await;
    let socket_folder = socket_folder(&server);
    server.stop().await.unwrap();

    symlink(&scratch.0, &socket_folder).unwrap();
    let error = refusal(&scratch.data()).await;
    fs::remove_file(&socket_folder).unwrap();
    assert!(
        matches!(error, EmbeddedError::SocketFolder { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains(socket_folder.to_str().unwrap()),
        "{error}"
    );
    start(&scratch.data()).await.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_come_up_says_why() {
    let scratch = Scratch::new();
    start(&scratch.data()).await.stop().await.unwrap();
    let configuration = scratch.cluster().join("postgresql.conf");
    let good = fs::read(&configuration).unwrap();
    fs::write(&configuration, "no_such_setting = 1\n").unwrap();
    let error = refusal(&scratch.data()).await;
    assert!(matches!(error, EmbeddedError::Exited { .. }), "{error}");
    assert!(error.to_string().contains("no_such_setting"), "{error}");

    fs::write(&configuration, good).unwrap();
    start(&scratch.data()).await.stop().await.unwrap();
}
