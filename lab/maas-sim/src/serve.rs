//! Serves a simulator on sockets, with connections that can be closed instead of answered.

use std::{convert::Infallible, io, net::SocketAddr};

use axum::{Router, body::Body};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use crate::{Simulator, sim::ConnectionReset};

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
