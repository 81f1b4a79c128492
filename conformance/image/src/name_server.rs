//! A fake name server that resolves every name to the loopback address.

use std::net::UdpSocket;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use crate::ImageSetupError;

const LISTEN_ADDRESS: &str = "127.0.0.1:53";

/// A server on port 53. It runs until the process ends.
pub(crate) struct FakeNameServer {
    queried_names: Arc<Mutex<Vec<String>>>,
}

impl FakeNameServer {
    pub(crate) fn start() -> Result<Self, ImageSetupError> {
        let socket = UdpSocket::bind(LISTEN_ADDRESS)
            .map_err(|source| ImageSetupError::Listen { address: LISTEN_ADDRESS, source })?;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&asked);
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((size, from)) = socket.recv_from(&mut buffer) {
                if let Some((name, reply)) = build_reply(&buffer[..size]) {
                    record.lock().push(name);
                    // The client repeats a query whose reply is lost.
                    socket.send_to(&reply, from).unwrap_or_default();
                }
            }
        });
        Ok(Self { queried_names: asked })
    }

    /// Returns the names that were queried since the last call.
    pub(crate) fn take_queried_names(&self) -> Vec<String> {
        std::mem::take(&mut self.queried_names.lock())
    }
}

/// Length of the header in bytes (RFC 1035, section 4.1.1).
const HEADER_LENGTH: usize = 12;
const TYPE_A: [u8; 2] = [0, 1];

/// Parses a query and builds the reply: an A record with the loopback address, or no record for other types.
fn build_reply(query: &[u8]) -> Option<(String, Vec<u8>)> {
    let mut rest = query.get(HEADER_LENGTH..)?;
    let mut labels = Vec::new();
    loop {
        let (length, after) = rest.split_first()?;
        let length = usize::from(*length);
        rest = after;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(rest.get(..length)?).into_owned());
        rest = &rest[length..];
    }
    let kind = rest.get(..2)?;
    // Type and class end the question. The reply does not echo what follows (EDNS).
    let end = query.len() - rest.len() + 4;
    let is_address = kind == TYPE_A;
    let mut reply = query.get(..2)?.to_vec();
    // Flags of an authoritative reply with recursion; one question and at most one record.
    reply.extend([0x85, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    reply.extend(query.get(HEADER_LENGTH..end)?);
    if is_address {
        // The name by reference, type A, class IN, no caching, four bytes.
        reply.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    Some((labels.join("."), reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(kind: u8) -> Vec<u8> {
        let mut query = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend(b"\x05login\x07example\x00");
        query.extend([0, kind, 0, 1]);
        query
    }

    #[test]
    fn address_query_returns_loopback() {
        let (name, reply) = build_reply(&query(1)).expect("a query");
        assert_eq!(name, "login.example");
        assert_eq!(&reply[..2], [0xab, 0xcd], "the id is the query's");
        assert_eq!(&reply[6..8], [0, 1], "one record");
        assert!(reply.ends_with(&[127, 0, 0, 1]));
    }

    #[test]
    fn other_query_types_return_no_record() {
        let (_, reply) = build_reply(&query(28)).expect("a query");
        assert_eq!(&reply[6..8], [0, 0]);
        assert_eq!(reply.len(), query(28).len());
    }

    #[test]
    fn malformed_query_gets_no_reply() {
        let whole = query(1);
        for size in 0..whole.len() {
            assert!(build_reply(&whole[..size]).is_none(), "{size}");
        }
    }
}
