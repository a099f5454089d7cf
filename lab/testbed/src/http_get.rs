//! A GET whose status alone matters: readiness of managers, probes of Pods.

use std::{fmt::Write as _, io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const WITHIN: Duration = Duration::from_secs(2);

/// The status code of `GET path`. `headers` may contain a Host header.
pub(crate) async fn status(address: SocketAddr, path: &str, headers: &[(String, String)]) -> io::Result<u16> {
    timeout(WITHIN, ask(address, path, headers)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn ask(address: SocketAddr, path: &str, headers: &[(String, String)]) -> io::Result<u16> {
    let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\nUser-Agent: capmaas-testbed\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        let _ = write!(request, "Host: {address}\r\n");
    }
    for (name, value) in headers {
        let _ = write!(request, "{name}: {value}\r\n");
    }
    request.push_str("\r\n");
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    // Only "HTTP/1.1 200" matters.
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    let code = std::str::from_utf8(&head).ok().and_then(|text| text.get(9..)).and_then(|code| code.parse().ok());
    code.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
}
