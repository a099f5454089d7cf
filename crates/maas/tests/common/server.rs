//! A real socket that sends what a test specifies.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The program chooses the cryptography; here the test is the program.
pub fn install_cryptography() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        rustls::crypto::ring::default_provider().install_default().expect("the first to install one");
    });
}

/// A server on a local port. It ends with the test's runtime.
pub struct Server {
    pub address: SocketAddr,
    /// Each request as it arrived, head and body.
    pub requests: Arc<Mutex<Vec<String>>>,
    /// How many connections were made.
    pub connections: Arc<Mutex<usize>>,
}

impl Server {
    /// Sends these bytes in answer to every request.
    pub async fn saying(answer: impl Into<Vec<u8>>) -> Self {
        Self::start(answer.into(), None).await
    }

    /// The same behind TLS.
    pub async fn saying_encrypted(answer: impl Into<Vec<u8>>, acceptor: TlsAcceptor) -> Self {
        Self::start(answer.into(), Some(acceptor)).await
    }

    async fn start(answer: Vec<u8>, acceptor: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server =
            Self { address: listener.local_addr().unwrap(), requests: Arc::default(), connections: Arc::default() };
        let (requests, connections) = (Arc::clone(&server.requests), Arc::clone(&server.connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *connections.lock().unwrap() += 1;
                let (answer, requests, acceptor) = (answer.clone(), Arc::clone(&requests), acceptor.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => serve(stream, &answer, &requests).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, &answer, &requests).await;
                            }
                        }
                    }
                });
            }
        });
        server
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}/MAAS", self.address)
    }
}

/// An HTTP/1.1 answer that keeps the connection open.
pub fn http(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

pub fn http_json(body: &str) -> String {
    http("200 OK\r\ncontent-type: application/json", body)
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8], requests: &Mutex<Vec<String>>) {
    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        heard.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&heard).into_owned();
        let Some((top, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            top.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() < length.unwrap_or(0) {
            continue;
        }
        requests.lock().unwrap().push(text);
        heard.clear();
        // An answer without its whole body closes the connection: that truncates it.
        let over = answer.is_empty() || stream.write_all(answer).await.is_err() || ends_early(answer);
        if over {
            return;
        }
    }
}

fn ends_early(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return true };
    let length: Option<usize> = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    length.is_none_or(|length| body.len() < length)
}
