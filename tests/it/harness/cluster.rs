//! A Postgres that a test may stop, start and kill.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::PATIENCE;

/// A pid that no process can have.
const NOBODY: &str = "999999999";

/// A cluster of its own, brought up as `tests/with-postgres.sh` does; removed when dropped.
pub(crate) struct Cluster {
    folder: PathBuf,
    bin: PathBuf,
    /// Over TCP at this port of the loopback, besides the Unix socket.
    port: u16,
}

impl Cluster {
    /// Makes it and starts it.
    pub(crate) fn start() -> Self {
        let folder = parent().join(format!("pt-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&folder).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let bin = binaries();
        let cluster = Self { folder, bin, port };
        if root() {
            let chown = Command::new("chown")
                .arg("postgres")
                .arg(&cluster.folder)
                .status();
            assert!(chown.unwrap().success());
        }
        cluster.run("initdb", |command| {
            command.args([
                "-U",
                "postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                // What was just made is not worth waiting for; what the server writes is.
                "--no-sync",
            ]);
        });
        cluster.resume();
        cluster
    }

    /// Starts it again.
    pub(crate) fn resume(&self) {
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={} -c unix_socket_directories='{}' \
             -c max_connections=200 -c log_min_messages=fatal",
            self.port,
            self.folder.display()
        );
        let log = self.folder.join("log");
        self.run("pg_ctl", |command| {
            command
                .args(["-w", "-o", &options, "-l"])
                .arg(log)
                .arg("start");
        });
    }

    /// Stops it: `fast` as an operator does, `immediate` as a crash does.
    pub(crate) fn stop(&self, mode: &str) {
        self.run("pg_ctl", |command| {
            command.args(["-w", "-m", mode, "stop"]);
        });
    }

    /// Sends a signal, such as `STOP`, to all its processes.
    pub(crate) fn signal(&self, name: &str) {
        let file = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        let postmaster = file.lines().next().unwrap().trim();
        let children = Command::new("pgrep").args(["-P", postmaster]).output();
        let children = String::from_utf8(children.unwrap().stdout).unwrap();
        let kill = Command::new("kill")
            .args([&format!("-{name}"), postmaster])
            .args(children.lines())
            .status();
        assert!(kill.unwrap().success());
    }

    /// Kills all its processes at once, and waits until they are gone.
    pub(crate) fn kill(&self) {
        let file = self.folder.join("data/postmaster.pid");
        let text = std::fs::read_to_string(&file).unwrap();
        let postmaster = text.lines().next().unwrap().trim().to_owned();
        // It must not make new ones meanwhile.
        let stop = Command::new("kill").args(["-STOP", &postmaster]).status();
        assert!(stop.unwrap().success());
        let children = Command::new("pgrep").args(["-P", &postmaster]).output();
        let children = String::from_utf8(children.unwrap().stdout).unwrap();
        let all: Vec<&str> = std::iter::once(&*postmaster)
            .chain(children.lines())
            .collect();
        // Some may have ended by themselves.
        let mut kill = Command::new("kill");
        let kill = kill.arg("-KILL").args(&all).stderr(Stdio::null());
        kill.status().unwrap();
        let began = Instant::now();
        while running(&all) {
            assert!(began.elapsed() < PATIENCE, "{all:?} cannot be killed");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Where nobody reaps it, the postmaster has still a pid, and the next would take it for one
        // that runs. The files stay, for they name the memory that the next has to remove.
        for file in [
            file,
            self.folder.join(format!(".s.PGSQL.{}.lock", self.port)),
        ] {
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, text.replacen(&postmaster, NOBODY, 1)).unwrap();
        }
    }

    /// Its address, through the Unix socket.
    pub(crate) fn socket_url(&self) -> String {
        let (folder, port) = (self.folder.display(), self.port);
        format!("postgres:///postgres?host={folder}&port={port}&user=postgres")
    }

    /// Where it listens on the loopback.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its address, over TCP.
    pub(crate) fn tcp_url(&self) -> String {
        let port = self.port;
        format!("postgres:///postgres?host=127.0.0.1&port={port}&user=postgres&sslmode=disable")
    }

    fn run(&self, program: &str, arguments: impl FnOnce(&mut Command)) {
        let program = self.bin.join(program);
        let mut command = if root() {
            // Postgres refuses to run as root.
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        command.arg("-D").arg(self.folder.join("data"));
        arguments(&mut command);
        command.current_dir("/").stdout(Stdio::null());
        let status = command.stderr(Stdio::null()).status().unwrap();
        assert!(status.success(), "{command:?}: {status}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let file = std::fs::read_to_string(self.folder.join("data/postmaster.pid"));
        if file.is_ok_and(|text| !text.starts_with(NOBODY)) {
            self.stop("immediate");
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Whether any of these processes has not ended.
fn running(pids: &[&str]) -> bool {
    let list = Command::new("ps")
        .args(["-o", "stat=", "-p", &pids.join(",")])
        .output();
    let list = String::from_utf8(list.unwrap().stdout).unwrap();
    list.lines().any(|state| !state.trim().starts_with('Z'))
}

/// Beside the cluster of all tests, which is in memory where there is room: whoever kills processes
/// loses nothing that was written, and recovery syncs a thousand files.
fn parent() -> PathBuf {
    let other = std::env::var("PAGETIDE_TEST_POSTGRES").unwrap_or_default();
    let socket = other
        .split(['?', '&'])
        .find_map(|part| part.strip_prefix("host="));
    let parent = socket.and_then(|folder| Path::new(folder).parent());
    parent.map_or_else(std::env::temp_dir, Path::to_owned)
}

fn root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

fn binaries() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(folder) = std::env::split_paths(&path).find(|p| p.join("initdb").exists()) {
        return folder;
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("no Postgres on this machine");
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("bin/initdb").exists())
        .max_by_key(|path| version(path));
    newest.expect("no Postgres on this machine").join("bin")
}
