use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{ManualClock, SharedClock};
use lanyard_emulator_core::emulated_service::MAX_BODY_BYTES;
use lanyard_emulator_core::server::{
    ACCEPT_RETRY_DELAY, BODY_TIMEOUT, ConnectionContext, ConnectionListener, FIRST_REQUEST_TIMEOUT,
    IDLE_TIMEOUT, REQUEST_GRACE, SHUTDOWN_GRACE, serve,
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

/// The header of a request to the token service without TLS.
const TOKEN_SERVICE: &str = "x-azure-proxy-target: AzureActiveDirectory\r\n";

impl ServerFixture {
    async fn connect_and_send(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Advances the clock by a timeout until the server closes the connection, and returns how often.
    async fn advance_until_closed(&self, stream: &TcpStream, timeout: Duration) -> usize {
        let mut bytes = [0; 4096];
        for advances in 0..8 {
            for _ in 0..100 {
                tokio::task::yield_now().await;
                match stream.try_read(&mut bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Ok(0) | Err(_) => return advances,
                    Ok(_) => {}
                }
            }
            self.clock.advance(timeout);
        }
        panic!("the connection stays open");
    }

    /// Lets the connections sleep, and wakes those whose time is over.
    async fn advance_by(&self, time: Duration) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        self.clock.advance(time);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.clock.advance(SHUTDOWN_GRACE);
        self.task.await.unwrap();
    }
}

#[tokio::test]
async fn connection_without_complete_headers_is_closed() {
    for start in ["", "GET /lanyard/v1/ca.pem HTT", "\u{16}", "\u{16}\u{3}\u{1}"] {
        let fixture = start_server(0, 8).await;
        let stream = fixture.connect_and_send(start).await;
        let advances = fixture.advance_until_closed(&stream, FIRST_REQUEST_TIMEOUT).await;
        assert!((1..=2).contains(&advances), "{start:?}: {advances}");
        fixture.stop().await;
    }
}

#[tokio::test]
async fn idle_connection_is_closed_and_a_used_one_is_not() {
    let fixture = start_server(0, 8).await;
    let mut idle = request_ca_certificate(fixture.address).await;
    assert_eq!(&first_bytes(&mut idle).await, b"HTTP/1.1 200 OK");
    let mut used = request_ca_certificate(fixture.address).await;
    let mut reply = vec![0; 65_536];
    fixture.advance_by(FIRST_REQUEST_TIMEOUT).await;
    for _ in 0..4 {
        assert!(used.read(&mut reply).await.unwrap() > 0);
        let request = "GET /lanyard/v1/ca.pem HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
        used.write_all(request.as_bytes()).await.unwrap();
        fixture.advance_by(IDLE_TIMEOUT).await;
    }
    assert!(used.read(&mut reply).await.unwrap() > 0);
    assert_eq!(fixture.advance_until_closed(&idle, Duration::ZERO).await, 0);
    drop(used);
    fixture.stop().await;
}

#[tokio::test]
async fn stalled_body_is_not_awaited() {
    for head in [
        "POST /lanyard/v1/rotate HTTP/1.1\r\nhost: 127.0.0.1\r\nx-lanyard-control: 1\r\n",
        "POST /common/oauth2/token HTTP/1.1\r\nhost: 127.0.0.1\r\nx-azure-proxy-target: AzureActiveDirectory\r\n",
    ] {
        for length in ["content-length: 100\r\n\r\n{", "transfer-encoding: chunked\r\n\r\n1\r\n"] {
            let fixture = start_server(0, 8).await;
            let stream = fixture.connect_and_send(&format!("{head}{length}")).await;
            assert!(fixture.advance_until_closed(&stream, BODY_TIMEOUT).await > 0, "{length}");
            fixture.stop().await;
        }
    }
}

#[tokio::test]
async fn caller_without_a_token_gets_its_reply_before_a_large_body_is_read() {
    let fixture = start_server(0, 8).await;
    let mut stream = fixture
        .connect_and_send(
            "PUT /lanyard/v1/snapshot HTTP/1.1\r\nhost: 127.0.0.1\r\nexpect: 100-continue\r\n\
             content-length: 268435456\r\n\r\n",
        )
        .await;
    assert_eq!(&first_bytes(&mut stream).await, b"HTTP/1.1 403 Fo");
    drop(stream);
    fixture.stop().await;
}

#[tokio::test]
async fn request_with_two_host_headers_is_rejected() {
    let fixture = start_server(0, 8).await;
    for start in [
        "GET /lanyard/v1/ca.pem HTTP/1.1",
        "GET http://169.254.169.254/metadata/instance HTTP/1.1",
        "CONNECT login.microsoftonline.com:443 HTTP/1.1",
    ] {
        for second in ["127.0.0.1", "evil.example"] {
            let request = format!("{start}\r\nhost: 127.0.0.1\r\nHost: {second}\r\n\r\n");
            let mut stream = fixture.connect_and_send(&request).await;
            assert_eq!(&first_bytes(&mut stream).await, b"HTTP/1.1 400 Ba", "{start} {second}");
        }
    }
    fixture.stop().await;
}

#[tokio::test]
async fn connections_without_a_request_give_way_to_others() {
    let fixture = start_server(0, 4).await;
    let mut used = request_ca_certificate(fixture.address).await;
    assert_eq!(&first_bytes(&mut used).await, b"HTTP/1.1 200 OK");
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(fixture.connect_and_send("GET /").await);
    }
    let other = request_ca_certificate(fixture.address).await;
    let mut start = [0; 12];
    // Each time, three of the silent connections give way to the next ones.
    let mut advances = 0;
    while other.try_read(&mut start).is_err() {
        assert!(advances < 8, "the silent connections stay open");
        fixture.advance_by(REQUEST_GRACE).await;
        advances += 1;
    }
    assert_eq!(&start, b"HTTP/1.1 200");
    assert!(advances > 0, "a connection has the time to send its request");
    used.write_all(b"GET /lanyard/v1/ca.pem HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
    assert!(used.read(&mut [0; 4096]).await.unwrap() > 0, "a used connection stays");
    drop((used, other, silent));
    fixture.stop().await;
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
        ("PUT /lanyard/v1/snapshot", "", r#""code":"HeaderMissing""#),
        ("POST /lanyard/v1/snapshot", header, "501 Not Implemented"),
        ("POST /lanyard/v1/faults", header, "the body is larger than 4 MiB"),
        ("POST /common/oauth2/token", TOKEN_SERVICE, "the body is larger than 64 KiB"),
    ] {
        let reply = send_body(address, start, header, large).await;
        assert!(reply.contains(expected), "{start} {header}: {reply}");
    }
    stop.send_replace(true);
    task.await.unwrap();
}
