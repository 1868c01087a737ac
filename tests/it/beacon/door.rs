//! An address that stays while the server behind it goes and comes.

use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(super) struct Door {
    pub(super) port: u16,
    leads_to: Arc<Mutex<String>>,
    passing: JoinHandle<()>,
}

impl Door {
    /// It leads nowhere yet: whoever connects is sent away.
    pub(super) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let leads_to = Arc::new(Mutex::new(String::new()));
        let target = Arc::clone(&leads_to);
        let passing = tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let address = target.lock().unwrap().clone();
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(address).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self {
            port,
            leads_to,
            passing,
        }
    }

    /// Connections that are made from now on lead to the server at `url`.
    pub(super) fn lead_to(&self, url: &str) {
        let address = url.strip_prefix("http://").unwrap();
        address.clone_into(&mut self.leads_to.lock().unwrap());
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.passing.abort();
    }
}
