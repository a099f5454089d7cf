//! `kubectl maas ui`: a page that shows the current state, served by this program on loopback.
//!
//! It reads with the user's own kubeconfig and MAAS key and changes nothing. Everything that the browser needs is in
//! the program.

mod board;
mod gather;
mod guard;
mod objects;
mod timeline;

use std::convert::Infallible;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use futures::Stream;
use maas_client::Client;
use serde::Deserialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::cluster::Cluster;
use board::Board;
use guard::{Guard, guarded};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// How the page is served.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The address to listen on; loopback only.
    pub address: IpAddr,
    /// The port; 0 takes any free one.
    pub port: u16,
    /// Open it in the user's browser.
    pub open: bool,
    /// Objects of all namespaces.
    pub all_namespaces: bool,
}

pub(crate) struct Sources {
    cluster: Cluster,
    maas: Option<Client>,
    all_namespaces: bool,
}

#[derive(Clone)]
struct Served {
    board: Board,
    sources: Arc<Sources>,
}

/// Serves the page until the program ends.
pub async fn serve(cluster: Cluster, maas: Option<Client>, options: Options) -> anyhow::Result<()> {
    if !options.address.is_loopback() {
        bail!(
            "--address {}: the page is served to this machine only; use 127.0.0.1 or ::1, and ssh -L to look from elsewhere",
            options.address
        );
    }
    let listener = tokio::net::TcpListener::bind(SocketAddr::new(options.address, options.port)).await;
    let listener =
        listener.with_context(|| format!("cannot listen on port {}; choose another with --port", options.port))?;
    let guard = Guard::new(listener.local_addr()?);
    let url = guard.url();
    let served = Served {
        board: Board::default(),
        sources: Arc::new(Sources { cluster, maas, all_namespaces: options.all_namespaces }),
    };
    gather::start(&served.board, &served.sources);
    println!("{url}");
    std::io::stdout().flush()?;
    let opened = if options.open { open(&url) } else { None };
    eprintln!("Anyone who has this URL can read what the page shows. Press Control-C to stop.");
    tokio::select! {
        ended = async { axum::serve(listener, router(served, guard)).await } => ended?,
        _ = tokio::signal::ctrl_c() => {}
    }
    drop(opened);
    Ok(())
}

fn router(served: Served, guard: Guard) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/live", get(live))
        .route("/machine", get(machine))
        .with_state(served)
        .layer(middleware::from_fn_with_state(guard, guarded))
}

/// The page, with its style and script inline: the only requests are those that carry the token.
async fn page() -> Response {
    let nonce = format!("{:032x}", rand::random::<u128>());
    let page = PAGE.replace("{{style}}", STYLE).replace("{{script}}", SCRIPT).replace("{{nonce}}", &nonce);
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let mut response = ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Everything, then every change.
async fn live(State(served): State<Served>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (all, changes) = served.board.subscribe();
    let state = (served.board, Some(all), changes);
    let stream = futures::stream::unfold(state, |(board, first, mut changes)| async move {
        let (text, changes) = match first {
            Some(text) => (text, changes),
            None => next(&board, &mut changes).await.map(|(text, anew)| (text, anew.unwrap_or(changes)))?,
        };
        Some((Ok(Event::default().data(&*text)), (board, None, changes)))
    });
    Sse::new(stream).keep_alive(KeepAlive::default())
}

/// The next change. A page that was too slow gets everything again.
async fn next(board: &Board, changes: &mut Receiver<Arc<str>>) -> Option<(Arc<str>, Option<Receiver<Arc<str>>>)> {
    match changes.recv().await {
        Ok(text) => Some((text, None)),
        Err(RecvError::Lagged(_)) => {
            let (all, anew) = board.subscribe();
            Some((all, Some(anew)))
        }
        Err(RecvError::Closed) => None,
    }
}

#[derive(Deserialize)]
struct MachineQuery {
    namespace: String,
    name: String,
}

/// One machine in full: conditions, events, timeline.
async fn machine(State(served): State<Served>, Query(query): Query<MachineQuery>) -> Response {
    match gather::details(&served.sources, &query.namespace, &query.name).await {
        Ok(details) => Json(details).into_response(),
        Err(error) => (StatusCode::NOT_FOUND, format!("{error:#}")).into_response(),
    }
}

/// Opens the page in the user's browser, through a file that only the user can read: command lines are visible to
/// everybody on this machine. The file exists as long as the returned value is kept.
fn open(url: &str) -> Option<tempfile::NamedTempFile> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started = opening(url).and_then(|file| {
        let quiet = std::process::Stdio::null;
        let mut command = std::process::Command::new(program);
        command.arg(file.path()).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().map(|_| file)
    });
    if started.is_err() {
        eprintln!("No browser could be opened here; open the URL yourself.");
    }
    started.ok()
}

/// A file that leads a browser to the page.
fn opening(url: &str) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("kubectl-maas-").suffix(".html").tempfile()?;
    write!(
        file,
        "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={url}\"><a href=\"{url}\">kubectl maas ui</a>"
    )?;
    file.flush()?;
    Ok(file)
}

#[cfg(test)]
mod tests;
