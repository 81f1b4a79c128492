use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use lanyard_clock::{ManualClock, SharedClock};
use lanyard_emulator_core::server::{
    ACCEPT_RETRY_DELAY, ConnectionContext, ConnectionListener, MAX_BODY_BYTES, serve,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::testing::{EngineFixture, azure_with_test_principals};

/// A listener that has no free file descriptor for a while.
struct FailingListener {
    listener: TcpListener,
    failures: u32,
}

impl ConnectionListener for FailingListener {
    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        if self.failures > 0 {
            self.failures -= 1;
            return Err(io::Error::from_raw_os_error(24));
        }
        TcpListener::accept(&self.listener).await
    }
}

struct ServerFixture {
    address: SocketAddr,
    clock: Arc<ManualClock>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

async fn start_server(failures: u32, most: usize) -> ServerFixture {
    let engine = Arc::new(EngineFixture::new(azure_with_test_principals()).engine);
    let gate = ConnectionContext::new(engine, false).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let clock = Arc::new(ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH));
    let (stop, stopped) = watch::channel(false);
    let listener = FailingListener { listener, failures };
    let shared: SharedClock = Arc::<ManualClock>::clone(&clock);
    let task = tokio::spawn(serve(listener, gate, shared, most, stopped));
    ServerFixture { address, clock, stop, task }
}

/// Requests the certificate of the authority and leaves the connection open.
async fn request_ca_certificate(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "GET /lanyard/v1/ca.pem HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn first_bytes(stream: &mut TcpStream) -> [u8; 15] {
    let mut bytes = [0; 15];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test]
async fn listener_waits_between_failed_accepts() {
    let ServerFixture { address, clock, stop, task } = start_server(3, 8).await;
    let mut stream = request_ca_certificate(address).await;
    for _ in 0..3 {
        while clock.sleeper_count() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(clock.time_until_next_deadline(), Some(ACCEPT_RETRY_DELAY), "it does not spin");
        clock.advance(ACCEPT_RETRY_DELAY);
    }
    assert_eq!(&first_bytes(&mut stream).await, b"HTTP/1.1 200 OK");
    drop(stream);
    stop.send_replace(true);
    task.await.unwrap();
}

#[tokio::test]
async fn connection_above_the_limit_waits_until_another_closes() {
    let ServerFixture { address, stop, task, .. } = start_server(0, 1).await;
    let mut first = request_ca_certificate(address).await;
    assert_eq!(&first_bytes(&mut first).await, b"HTTP/1.1 200 OK");
    let mut second = request_ca_certificate(address).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let mut byte = [0; 1];
    let early = second.try_read(&mut byte).unwrap_err();
    assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
    drop(first);
    assert_eq!(&first_bytes(&mut second).await, b"HTTP/1.1 200 OK");
    drop(second);
    stop.send_replace(true);
    task.await.unwrap();
}

/// Sends a request with a body to the control API, and returns the reply.
async fn send_body(address: SocketAddr, start: &str, header: &str, bytes: usize) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{start} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{header}content-length: {bytes}\r\n\r\n"
    );
    let (mut reader, mut writer) = stream.split();
    let send = async {
        writer.write_all(head.as_bytes()).await.unwrap();
        // The server may close the connection before the end of the body.
        drop(writer.write_all(&vec![b' '; bytes]).await);
    };
    let mut reply = Vec::new();
    let receive = async {
        // A reset after the reply is of no interest.
        drop(reader.read_to_end(&mut reply).await);
    };
    tokio::join!(send, receive);
    String::from_utf8(reply).unwrap()
}

#[tokio::test]
async fn only_a_snapshot_with_the_control_header_may_be_large() {
    let ServerFixture { address, stop, task, .. } = start_server(0, 8).await;
    let large = MAX_BODY_BYTES + 1;
    let header = "x-lanyard-control: 1\r\n";
    for (start, header, expected) in [
        ("PUT /lanyard/v1/snapshot", header, "the snapshot is invalid"),
        ("PUT /lanyard/v1/snapshot", "", "larger than 4 MiB, or the connection closed"),
        ("POST /lanyard/v1/snapshot", header, "larger than 4 MiB, or the connection closed"),
        ("POST /lanyard/v1/faults", header, r#""code":"BodyTooLarge""#),
    ] {
        let reply = send_body(address, start, header, large).await;
        assert!(reply.contains(expected), "{start} {header}: {reply}");
    }
    stop.send_replace(true);
    task.await.unwrap();
}
