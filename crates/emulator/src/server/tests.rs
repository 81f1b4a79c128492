use std::net::Ipv4Addr;

use lanyard_clock::ManualClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::testing::{Probe, world};

/// A listener of a process that has no file descriptor left for a while.
struct Starved {
    listener: TcpListener,
    failures: u32,
}

impl Accept for Starved {
    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        if self.failures > 0 {
            self.failures -= 1;
            return Err(io::Error::from_raw_os_error(24));
        }
        TcpListener::accept(&self.listener).await
    }
}

struct Serving {
    address: SocketAddr,
    clock: Arc<ManualClock>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

async fn serving(failures: u32, most: usize) -> Serving {
    let engine = Arc::new(Probe::new(world()).engine);
    let gate = Gate::new(engine, false).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let clock = Arc::new(ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH));
    let (stop, stopped) = watch::channel(false);
    let listener = Starved { listener, failures };
    let shared: SharedClock = Arc::<ManualClock>::clone(&clock);
    let task = tokio::spawn(serve(listener, gate, shared, most, stopped));
    Serving { address, clock, stop, task }
}

/// Asks for the certificate of the authority and leaves the connection open.
async fn asked(address: SocketAddr) -> TcpStream {
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
async fn a_listener_that_cannot_accept_rests_between_its_attempts() {
    let Serving { address, clock, stop, task } = serving(3, 8).await;
    let mut stream = asked(address).await;
    for _ in 0..3 {
        while clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(clock.next_due(), Some(REST), "it does not spin");
        clock.advance(REST);
    }
    assert_eq!(&first_bytes(&mut stream).await, b"HTTP/1.1 200 OK");
    drop(stream);
    stop.send_replace(true);
    task.await.unwrap();
}

#[tokio::test]
async fn a_connection_too_many_waits_until_another_one_ends() {
    let Serving { address, stop, task, .. } = serving(0, 1).await;
    let mut first = asked(address).await;
    assert_eq!(&first_bytes(&mut first).await, b"HTTP/1.1 200 OK");
    let mut second = asked(address).await;
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
