use std::net::Ipv4Addr;

use lanyard_clock::ManualClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
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
