//! A fake Entra ID that rejects every request and records the requests that arrive over TLS.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::ImageSetupError;

const LISTEN_ADDRESS: &str = "127.0.0.1:443";

/// A server on port 443. It runs until the process ends.
pub(crate) struct FakeEntra {
    state: Arc<FakeEntraState>,
}

struct FakeEntraState {
    config: Mutex<Arc<ServerConfig>>,
    requests: Mutex<Vec<String>>,
}

/// The response of Entra ID to an unknown key. The error is final, so clients do not retry.
const UNKNOWN_KEY_RESPONSE: &str = r#"{"error":"invalid_client","error_description":"AADSTS700027: no key","error_codes":[700027]}"#;

impl FakeEntra {
    pub(crate) fn start(config: Arc<ServerConfig>) -> Result<Self, ImageSetupError> {
        let listener = TcpListener::bind(LISTEN_ADDRESS)
            .map_err(|source| ImageSetupError::Listen { address: LISTEN_ADDRESS, source })?;
        let shared =
            Arc::new(FakeEntraState { config: Mutex::new(config), requests: Mutex::default() });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&serving);
                // A connection that the client aborts leaves no request line, which the test then reports.
                thread::spawn(move || serve_connection(stream, &shared).unwrap_or_default());
            }
        });
        Ok(Self { state: shared })
    }

    /// Replaces the serving certificate for new connections.
    pub(crate) fn set_certificate(&self, config: Arc<ServerConfig>) {
        *self.state.config.lock() = config;
    }

    /// Returns the request lines since the last call.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.requests.lock())
    }
}

fn serve_connection(stream: TcpStream, shared: &FakeEntraState) -> io::Result<()> {
    let config = Arc::clone(&shared.config.lock());
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    let mut length = 0;
    let mut first = None;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or_default();
        }
        first.get_or_insert_with(|| line.to_owned());
    }
    io::copy(&mut Read::by_ref(&mut stream).take(length), &mut io::sink())?;
    shared.requests.lock().extend(first);
    let stream = stream.get_mut();
    write!(
        stream,
        "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{UNKNOWN_KEY_RESPONSE}",
        UNKNOWN_KEY_RESPONSE.len()
    )?;
    stream.conn.send_close_notify();
    stream.flush()
}
