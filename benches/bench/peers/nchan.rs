//! nginx with nchan, a hub of event streams (Debian: `nginx libnginx-mod-nchan`), as a process of our
//! own with a configuration of our own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use pagetide::db::embedded;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::Error;
use crate::context::Context;
use crate::cpu::{self, Usage};
use crate::readers::{self, Wanted};

/// Where distributions put it.
const MODULES: [&str; 2] = [
    "/usr/lib/nginx/modules/ngx_nchan_module.so",
    "/usr/lib64/nginx/modules/ngx_nchan_module.so",
];

/// What names an event on a stream.
pub(crate) const HEADERS: &str = "X-EventSource-Event: counts\r\n";

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running nginx; told to stop when dropped.
pub(crate) struct Nchan {
    master: Child,
    folder: PathBuf,
    /// Where it listens: host and port.
    pub(crate) address: String,
}

impl Nchan {
    /// Starts it, for as many connections as are said.
    pub(crate) async fn start(context: &Context, connections: usize) -> Result<Self, Error> {
        let module = MODULES.iter().find(|module| Path::new(module).exists());
        let module = module.ok_or("nchan is missing: install nginx and libnginx-mod-nchan")?;
        let folder = context.folder.join(format!("nchan-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let address = free_address()?;
        let settings = configuration(module, &folder, &address, connections);
        let file = folder.join("nginx.conf");
        std::fs::write(&file, settings)?;
        let master = Command::new("nginx")
            .arg("-p")
            .arg(&folder)
            .arg("-e")
            .arg(folder.join("error.log"))
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let mut nchan = Self {
            master,
            folder,
            address,
        };
        nchan.listening().await?;
        Ok(nchan)
    }

    async fn listening(&mut self) -> Result<(), Error> {
        let begin = Instant::now();
        while TcpStream::connect(&self.address).await.is_err() {
            if self.master.try_wait()?.is_some() || begin.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.folder.join("error.log"));
                return Err(format!("nginx did not start: {}", log.unwrap_or_default()).into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Where to publish on `channel`.
    pub(crate) fn publish_path(channel: &str) -> String {
        format!("/publish?id={channel}")
    }

    /// The request for the stream of `channel`.
    pub(crate) fn follow(&self, channel: &str) -> Wanted {
        let path = format!("/events?id={channel}");
        Wanted {
            request: readers::request(&self.address, &path, ""),
            cursor: None,
        }
    }

    /// What all its processes cost so far.
    pub(crate) fn usage(&self) -> Result<Usage, Error> {
        cpu::of_tree(self.pid()?)
    }

    /// Resident memory of all its processes.
    pub(crate) fn memory(&self) -> Result<u64, Error> {
        cpu::memory_of_tree(self.pid()?)
    }

    fn pid(&self) -> Result<u32, Error> {
        Ok(self.master.id().ok_or("nginx has ended")?)
    }

    /// Ends it, and removes what it wrote.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        self.tell_to_stop();
        self.master.wait().await?;
        std::fs::remove_dir_all(&self.folder)?;
        Ok(())
    }

    /// The master ends its workers; were it killed, they would live on.
    fn tell_to_stop(&self) {
        if let Some(pid) = self.master.id() {
            let mut kill = std::process::Command::new("kill");
            let _ = kill.arg(pid.to_string()).status();
        }
    }
}

impl Drop for Nchan {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}

fn free_address() -> Result<String, Error> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.to_string())
}

/// As many messages are kept as we keep frames, and quiet streams are heard of as often as ours.
fn configuration(module: &str, folder: &Path, address: &str, connections: usize) -> String {
    let folder = folder.display();
    // A worker may get all connections, and holds some of its own.
    let connections = connections + 1000;
    // Without a word on it, workers of root are nobody's.
    let user = if embedded::is_root() {
        "user nobody nogroup;"
    } else {
        ""
    };
    format!(
        "load_module {module};
{user}
daemon off;
worker_processes auto;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 100000000;
    nchan_shared_memory_size 256M;
    server {{
        listen {address} backlog=4096;
        location = /publish {{
            nchan_publisher;
            nchan_channel_id $arg_id;
            nchan_message_buffer_length 512;
        }}
        location = /events {{
            nchan_subscriber eventsource;
            nchan_channel_id $arg_id;
            nchan_subscriber_first_message newest;
            nchan_eventsource_ping_interval 15;
        }}
    }}
}}
"
    )
}
