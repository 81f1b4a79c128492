//! An Entra ID that refuses everybody and remembers who came through TLS.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::SetupError;

const ADDRESS: &str = "127.0.0.1:443";

/// A server on the port of https; it ends with the process.
pub(crate) struct Endpoint {
    shared: Arc<Shared>,
}

struct Shared {
    config: Mutex<Arc<ServerConfig>>,
    requests: Mutex<Vec<String>>,
}

/// As Entra answers a key that it does not know. It is final: nobody tries again.
const REFUSAL: &str = r#"{"error":"invalid_client","error_description":"AADSTS700027: no key","error_codes":[700027]}"#;

impl Endpoint {
    pub(crate) fn start(config: Arc<ServerConfig>) -> Result<Self, SetupError> {
        let listener = TcpListener::bind(ADDRESS)
            .map_err(|source| SetupError::Listen { address: ADDRESS, source })?;
        let shared = Arc::new(Shared { config: Mutex::new(config), requests: Mutex::default() });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&serving);
                // A client that breaks off is seen by what is missing.
                thread::spawn(move || serve(stream, &shared).unwrap_or_default());
            }
        });
        Ok(Self { shared })
    }

    /// Shows another certificate from now on.
    pub(crate) fn show(&self, config: Arc<ServerConfig>) {
        *self.shared.config.lock() = config;
    }

    /// Takes the request lines that came so far.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.requests.lock())
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
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
         content-length: {}\r\n\r\n{REFUSAL}",
        REFUSAL.len()
    )?;
    stream.conn.send_close_notify();
    stream.flush()
}
