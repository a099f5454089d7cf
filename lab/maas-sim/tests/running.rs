//! A simulator with threads of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use maas_sim::{
    Config, Simulator,
    serve::{Running, serve},
};
use tokio::runtime;

const ANYWHERE: &str = "127.0.0.1:0";

fn start(address: SocketAddr, names: SocketAddr) -> io::Result<Running> {
    let simulator = Simulator::new(Config::new("consumer:token:secret".parse().unwrap()));
    let runtime = runtime::Builder::new_current_thread();
    Running::start(simulator.clone(), runtime, (address, names), |listener| async move {
        serve(simulator, listener).await.unwrap();
    })
}

#[test]
fn it_answers_until_it_is_dropped() {
    let anywhere = ANYWHERE.parse().unwrap();
    let running = start(anywhere, anywhere).unwrap();
    let address = running.endpoint.strip_prefix("http://").unwrap().strip_suffix("/MAAS").unwrap().to_owned();
    let mut connection = TcpStream::connect(&address).unwrap();
    connection.write_all(b"GET /MAAS/api/2.0/version/ HTTP/1.1\r\nhost: maas\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    drop(running);
    assert_eq!(TcpStream::connect(&address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn an_address_that_cannot_be_had_is_an_error_at_the_start() {
    let taken = TcpListener::bind(ANYWHERE).unwrap();
    let (taken_address, anywhere) = (taken.local_addr().unwrap(), ANYWHERE.parse().unwrap());
    for (address, names, words) in
        [(taken_address, anywhere, "in use"), (anywhere, taken_address, "serve names on 127.0.0.1:")]
    {
        let error = start(address, names).err().unwrap();
        assert!(error.kind() == ErrorKind::AddrInUse && error.to_string().contains(words), "{error}");
    }
}
