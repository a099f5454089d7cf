//! Serves a simulator on sockets, with connections that can be closed instead of answered.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::mpsc,
    thread::{self, JoinHandle},
};

use axum::{Router, body::Body};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, runtime, sync::watch};
use tower::ServiceExt as _;

use crate::{Simulator, dns_server, sim::ConnectionReset};

/// How often a real clock is updated without requests.
const TICK: std::time::Duration = std::time::Duration::from_millis(50);

/// Serves until it is dropped.
pub async fn serve(simulator: Simulator, listener: TcpListener) -> io::Result<()> {
    let ticking = simulator.clone();
    let ticker = tokio::spawn(async move {
        loop {
            tokio::time::sleep(TICK).await;
            ticking.tick().await;
        }
    });
    let outcome = serve_router(simulator.router(), listener).await;
    ticker.abort();
    outcome
}

/// Serves any router of a simulator.
pub async fn serve_router(router: Router, listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let router = router.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let router = router.clone();
                async move {
                    let response = match router.oneshot(request.map(Body::new)).await {
                        Ok(response) => response,
                        Err(never) => unreachable(never),
                    };
                    if response.extensions().get::<ConnectionReset>().is_some() {
                        return Err(io::Error::from(io::ErrorKind::ConnectionReset));
                    }
                    Ok(response)
                }
            });
            // A disconnect by the client, or through a fault, is not an error.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn unreachable(never: Infallible) -> hyper::Response<Body> {
    match never {}
}

/// Listens on an address and returns the actual one.
pub async fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// The name of all threads of a [`Running`] simulator.
pub const THREADS: &str = "maas";

/// A simulator on sockets, with threads of its own: it keeps running whatever its user does. Stopped on drop.
pub struct Running {
    /// The URL of the API, as a user writes it.
    pub endpoint: String,
    /// Ends the threads when it is dropped.
    alive: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Listens on an address, serves the names of all domains on another one, and runs `serve` with the listener.
    pub fn start<F: Future<Output = ()> + 'static>(
        simulator: Simulator,
        mut runtime: runtime::Builder,
        (address, names): (SocketAddr, SocketAddr),
        serve: impl FnOnce(TcpListener) -> F + Send + 'static,
    ) -> io::Result<Self> {
        let (alive, mut ended) = watch::channel(());
        let (started, start) = mpsc::channel();
        let thread = thread::Builder::new().name(THREADS.to_owned()).spawn(move || {
            let runtime = match runtime.thread_name(THREADS).enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            runtime.block_on(async move {
                let listener = match listen_with_names(simulator, address, names).await {
                    Ok((listener, bound)) => {
                        let _ = started.send(Ok(bound));
                        listener
                    }
                    Err(error) => return drop(started.send(Err(error))),
                };
                tokio::select! {
                    () = serve(listener) => {}
                    _ = ended.changed() => {}
                }
            });
        })?;
        let bound = start.recv().map_err(|_| io::Error::other("the thread of MAAS ended"))??;
        Ok(Self { endpoint: format!("http://{bound}/MAAS"), alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.alive.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn listen_with_names(
    simulator: Simulator,
    address: SocketAddr,
    names: SocketAddr,
) -> io::Result<(TcpListener, SocketAddr)> {
    let served = dns_server::serve(simulator, names).await;
    served.map_err(|error| io::Error::new(error.kind(), format!("serve names on {names}: {error}")))?;
    listen(address).await
}
