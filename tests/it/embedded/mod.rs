//! The embedded Postgres, for real: these tests run the server that is
//! installed on the machine, as root or as an ordinary user.

mod refusals;
mod starts;

use std::{
    env, fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, lchown, symlink},
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use pagetide::db::embedded::{BinarySearch, Embedded, EmbeddedError};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection};
use uuid::Uuid;

use crate::harness;

/// A folder that is gone after the test.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        let folder = env::temp_dir().join(format!("pagetide-test-{}", Uuid::new_v4().simple()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        Self(fs::canonicalize(folder).unwrap())
    }

    pub(super) fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    pub(super) fn cluster(&self) -> PathBuf {
        self.data().join("postgres")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Tests use what is installed, and never download.
pub(super) fn installed() -> BinarySearch {
    BinarySearch {
        fetch: false,
        ..BinarySearch::default()
    }
}

pub(super) async fn start(data_dir: &Path) -> Embedded {
    Embedded::start_with(data_dir, &installed()).await.unwrap()
}

pub(super) async fn refusal(data_dir: &Path) -> EmbeddedError {
    Embedded::start_with(data_dir, &installed())
        .await
        .unwrap_err()
}

pub(super) async fn connect(server: &Embedded) -> PgConnection {
    server.connect_options().connect().await.unwrap()
}

pub(super) async fn write_note(server: &Embedded) {
    let mut connection = connect(server).await;
    connection
        .execute("CREATE TABLE note (text text NOT NULL)")
        .await
        .unwrap();
    connection
        .execute("INSERT INTO note VALUES ('still here')")
        .await
        .unwrap();
    connection.close().await.unwrap();
}

pub(super) async fn read_note(server: &Embedded) -> String {
    let mut connection = connect(server).await;
    let note = sqlx::query_scalar("SELECT text FROM note")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    note
}

pub(super) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    harness::until(what, async || condition().await.then_some(())).await;
}

pub(super) fn signal(signal: &str, pid: u32) -> bool {
    Command::new("sh")
        .args(["-c", &format!("kill -{signal} {pid}")])
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
}

/// Whether a process runs; one that waits to be buried does not.
pub(super) fn runs(pid: u32) -> bool {
    let state = Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let state = String::from_utf8(state.stdout).unwrap();
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

pub(super) fn are_root(scratch: &Scratch) -> bool {
    fs::metadata(&scratch.0).unwrap().uid() == 0
}

pub(super) fn socket_folder(server: &Embedded) -> PathBuf {
    server.connect_options().get_socket().unwrap().clone()
}

/// A process that has nothing to do with Postgres, but runs as its user.
pub(super) struct Bystander(pub(super) Child);

impl Bystander {
    pub(super) fn next_to(cluster: &Path, scratch: &Scratch) -> Self {
        let mut command = Command::new("sleep");
        command.arg("600").current_dir("/");
        if are_root(scratch) {
            let owner = fs::metadata(cluster).unwrap();
            command.uid(owner.uid()).gid(owner.gid());
        }
        Self(command.spawn().unwrap())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
