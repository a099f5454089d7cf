//! The API server as reached on one control-plane machine.

use std::net::SocketAddr;

use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

use crate::error::{Doing, Result};

/// Forwards connections from a machine's address to the one API server. All are closed on drop, as when a machine loses
/// power.
#[derive(Debug)]
pub(super) struct Endpoint {
    task: JoinHandle<()>,
}

impl Endpoint {
    pub(super) async fn open(address: SocketAddr, api_server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await.doing(|| format!("listen on {address}"))?;
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            // A listener that fails for good ends the endpoint; callers then see a closed port.
            while let Ok((mut from, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(async move {
                    if let Ok(mut to) = TcpStream::connect(api_server).await {
                        // Either side may disconnect at any time.
                        let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                    }
                });
            }
        });
        Ok(Self { task })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}
