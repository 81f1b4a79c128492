//! Replaces a socket path in the authority of requests.
//!
//! Some gRPC clients send the path of the socket as `:authority`, with percent-encoded slashes: the kubelet
//! to registration sockets (1.34 to 1.36.3), and the clients of gRPC's C core for Python, C++, Ruby and PHP
//! (1.58 to 1.85). grpc-java sends the bare path. RFC 3986 does not allow such a host, and `h2` 0.4 answers
//! `PROTOCOL_ERROR` before the gRPC service sees the request; it has no option that accepts it
//! (<https://github.com/hyperium/h2/pull/487>). The authority has no meaning on a socket, so the rewriter
//! replaces a path with `localhost`, which other clients send. Most requests refer to the header table of the
//! connection, which contains the replacement of an earlier request. The replacement is at most as long as the
//! path: the client computes the size of the table from what it sent, so no entry may be larger.
//!
//! In a header block (RFC 7541) an authority is a literal, whose name is entry 1 of the static table or a literal
//! too, and one literal replaces another.

/// The length of the client preface (RFC 9113, 3.4).
const PREFACE_LENGTH: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
const FRAME_HEADER_LENGTH: usize = 9;
/// The type of a HEADERS frame and its flags (RFC 9113, 6.2).
const HEADERS_FRAME_TYPE: u8 = 1;
const PADDED: u8 = 0x08;
const WITH_PRIORITY: u8 = 0x20;
/// The largest frame that a client may send before the server's settings allow more.
const MAX_FRAME_SIZE: usize = 16_384;

/// `:authority` in the static table (RFC 7541, appendix A).
const AUTHORITY_TABLE_INDEX: usize = 1;
/// `:authority` as a string, plain and in Huffman code (RFC 7541, 5.2).
const AUTHORITY_NAMES: [&[u8]; 2] =
    [b"\x0a:authority", &[0x88, 0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f]];
/// The flag of a string in Huffman code (RFC 7541, 5.2).
const HUFFMAN_CODED: u8 = 0x80;
/// `%` and `/` in Huffman code, which have six bits (RFC 7541, appendix B).
const PERCENT_CODE: u8 = 0x15;
const SLASH_CODE: u8 = 0x18;
const LOCALHOST: &[u8] = b"localhost";

/// Rewrites the bytes of a connection.
#[derive(Debug)]
pub(super) struct AuthorityRewriter {
    state: RewriteState,
    /// The incomplete frame that is held back.
    buffered: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RewriteState {
    /// Passing through this many bytes unchanged.
    PassThrough(usize),
    /// Reading a frame header.
    FrameHeader,
    /// Reading a HEADERS frame of this length, including its header.
    HeadersFrame(usize),
}

impl AuthorityRewriter {
    pub(super) const fn new() -> Self {
        Self { state: RewriteState::PassThrough(PREFACE_LENGTH), buffered: Vec::new() }
    }

    /// Returns the bytes for the server. Holds back only an incomplete frame header or HEADERS
    /// frame, so that neither side waits for the other.
    pub(super) fn rewrite(&mut self, mut input: &[u8]) -> Vec<u8> {
        let mut output = Vec::with_capacity(input.len());
        while !input.is_empty() {
            match self.state {
                RewriteState::PassThrough(left) => {
                    let (now, later) = input.split_at(left.min(input.len()));
                    output.extend_from_slice(now);
                    input = later;
                    let left = left - now.len();
                    self.state = if left == 0 {
                        RewriteState::FrameHeader
                    } else {
                        RewriteState::PassThrough(left)
                    };
                }
                RewriteState::FrameHeader => {
                    input = self.buffer_up_to(input, FRAME_HEADER_LENGTH);
                    if self.buffered.len() == FRAME_HEADER_LENGTH {
                        self.state = state_after_header(&self.buffered);
                        if !matches!(self.state, RewriteState::HeadersFrame(_)) {
                            output.append(&mut self.buffered);
                        }
                    }
                }
                RewriteState::HeadersFrame(length) => {
                    input = self.buffer_up_to(input, length);
                    if self.buffered.len() == length {
                        // The server rejects a malformed header block itself.
                        let changed = replace_authority(&self.buffered);
                        output.extend(changed.unwrap_or_else(|| self.buffered.clone()));
                        self.buffered = Vec::new();
                        self.state = RewriteState::FrameHeader;
                    }
                }
            }
        }
        output
    }

    /// Buffers up to `length` bytes in total and returns the rest of the input.
    fn buffer_up_to<'a>(&mut self, input: &'a [u8], length: usize) -> &'a [u8] {
        let (now, later) = input.split_at((length - self.buffered.len()).min(input.len()));
        self.buffered.extend_from_slice(now);
        later
    }
}

/// The state after a frame header.
fn state_after_header(header: &[u8]) -> RewriteState {
    let length = frame_length(header);
    match header.get(3) {
        Some(&HEADERS_FRAME_TYPE) if (1..=MAX_FRAME_SIZE).contains(&length) => {
            RewriteState::HeadersFrame(FRAME_HEADER_LENGTH + length)
        }
        // The server rejects an empty or oversized HEADERS frame itself.
        _ if length == 0 => RewriteState::FrameHeader,
        _ => RewriteState::PassThrough(length),
    }
}

fn frame_length(header: &[u8]) -> usize {
    header.iter().take(3).fold(0, |length, byte| length << 8 | usize::from(*byte))
}

/// The HEADERS frame with `localhost` as its authority, or with the beginning of `localhost` instead of a shorter
/// path; `None` if its authority is not a literal, or no path.
fn replace_authority(frame: &[u8]) -> Option<Vec<u8>> {
    let (header, payload) = frame.split_at_checked(FRAME_HEADER_LENGTH)?;
    let flags = *header.get(4)?;
    let before = usize::from(flags & PADDED != 0) + 5 * usize::from(flags & WITH_PRIORITY != 0);
    let padding = if flags & PADDED == 0 { 0 } else { usize::from(*payload.first()?) };
    let block = payload.get(before..payload.len().checked_sub(padding)?)?;
    let (from, to) = find_authority_value(block)?;
    let old = before + from..before + to;
    let (length, value) = decode_integer(block, from, 7)?;
    if !is_path(block.get(value..to)?, block.get(from)? & HUFFMAN_CODED != 0) {
        return None;
    }
    // Clients use Huffman code where it is shorter, so the text has at least this length.
    let host = LOCALHOST.get(..length).unwrap_or(LOCALHOST);
    let host_length = u8::try_from(host.len()).ok()?;
    let mut changed = payload.to_vec();
    changed.splice(old, std::iter::once(host_length).chain(host.iter().copied()));
    let [_, length @ ..] = u32::try_from(changed.len()).ok()?.to_be_bytes();
    Some([&length, header.get(3..)?, &changed].concat())
}

/// The range of the authority's value in a header block, including its length prefix.
fn find_authority_value(block: &[u8]) -> Option<(usize, usize)> {
    let mut at = 0;
    loop {
        let first = *block.get(at)?;
        let (prefix, is_literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let (index, next) = decode_integer(block, at, prefix)?;
        at = next;
        if !is_literal {
            continue;
        }
        let mut is_authority = index == AUTHORITY_TABLE_INDEX;
        if index == 0 {
            let end = end_of_string(block, at)?;
            is_authority = AUTHORITY_NAMES.contains(&&block[at..end]);
            at = end;
        }
        let end = end_of_string(block, at)?;
        if is_authority {
            return Some((at, end));
        }
        at = end;
    }
}

fn end_of_string(block: &[u8], at: usize) -> Option<usize> {
    let (length, next) = decode_integer(block, at, 7)?;
    let end = next.checked_add(length)?;
    (end <= block.len()).then_some(end)
}

/// Whether an authority is a path: it contains `%` or `/`. A rare character with a long Huffman code counts as one.
fn is_path(value: &[u8], is_huffman_coded: bool) -> bool {
    if !is_huffman_coded {
        return value.iter().any(|byte| matches!(byte, b'%' | b'/'));
    }
    let bit = |at: usize| value.get(at / 8).map(|byte| byte >> (7 - at % 8) & 1);
    let mut at = 0;
    loop {
        let code =
            |length: usize| (at..at + length).try_fold(0_u8, |code, at| Some(code << 1 | bit(at)?));
        // The codes of each length are a range, and greater than the beginnings of shorter ones.
        at += match (code(5), code(6), code(7), code(8)) {
            (Some(..0x0a), ..) => 5,
            (_, Some(PERCENT_CODE | SLASH_CODE), ..) => return true,
            (_, Some(..0x2e), ..) => 6,
            (_, _, Some(..0x7c), _) => 7,
            (_, _, _, Some(..0xfe)) => 8,
            (_, _, _, Some(_)) => return true,
            // The padding.
            _ => return false,
        };
    }
}

/// Decodes an integer with a prefix of `prefix` bits (RFC 7541, 5.1); returns it with the position
/// after it.
fn decode_integer(block: &[u8], at: usize, prefix: u32) -> Option<(usize, usize)> {
    let mask = (1_usize << prefix) - 1;
    let first = usize::from(*block.get(at)?) & mask;
    if first < mask {
        return Some((first, at + 1));
    }
    let (mut value, mut shift, mut at) = (mask, 0_u32, at + 1);
    loop {
        let byte = *block.get(at)?;
        // No length in a frame of this size needs more bytes.
        if shift > 21 {
            return None;
        }
        value += usize::from(byte & 0x7f) << shift;
        shift += 7;
        at += 1;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    const PATH: &str = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fdriver-reg.sock";

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).expect("short frames only");
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    fn literal(name: u8, value: &str) -> Vec<u8> {
        let length = u8::try_from(value.len()).expect("short values only");
        [&[0x40 | name, length], value.as_bytes()].concat()
    }

    /// `:method POST`, `:scheme http`, `:path`, an authority, `content-type`, `te`.
    fn header_block(authority: &str) -> Vec<u8> {
        let te = [&[0x00, 0x02], b"te".as_slice(), &[0x08], b"trailers"].concat();
        let path = literal(4, "/pluginregistration.Registration/GetInfo");
        let kind = literal(31, "application/grpc");
        [&[0x83, 0x86], &path[..], &literal(1, authority), &kind, &te].concat()
    }

    /// The first bytes that a grpc-go client sends on a connection, including its first request.
    pub(in crate::socket) fn first_request(authority: &str) -> Vec<u8> {
        let settings = frame(4, 0, 0, &[]);
        let headers = frame(HEADERS_FRAME_TYPE, 0x04, 1, &header_block(authority));
        let data = frame(0, 0x01, 1, &[0, 0, 0, 0, 0]);
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &headers, &data].concat()
    }

    #[test]
    fn socket_path_as_authority_is_replaced_with_localhost() {
        let mut rewriter = AuthorityRewriter::new();
        assert_eq!(rewriter.rewrite(&first_request(PATH)), first_request("localhost"));
    }

    #[test]
    fn replacement_preserves_padding_and_priority() {
        let payload = |authority: &str| {
            [&[3, 0, 0, 0, 0, 9], &header_block(authority)[..], &[0, 0, 0]].concat()
        };
        let flags = 0x04 | PADDED | WITH_PRIORITY;
        let changed = replace_authority(&frame(HEADERS_FRAME_TYPE, flags, 1, &payload(PATH)));
        assert_eq!(changed, Some(frame(HEADERS_FRAME_TYPE, flags, 1, &payload("localhost"))));
    }

    #[test]
    fn replacement_is_never_longer_than_the_authority() {
        for (authority, expected) in
            [("/", "l"), ("%2Fa", "loca"), ("%2Fa.sock", "localhost"), ("%2Fa.socket", "localhost")]
        {
            let mut rewriter = AuthorityRewriter::new();
            assert_eq!(rewriter.rewrite(&first_request(authority)), first_request(expected));
        }
    }

    #[test]
    fn authority_that_is_no_path_stays() {
        for authority in ["", "a", "localhost", "127.0.0.1:50051", "driver.example"] {
            let request = first_request(authority);
            assert_eq!(AuthorityRewriter::new().rewrite(&request), request);
        }
    }

    #[test]
    fn paths_are_recognized_in_huffman_code() {
        type HuffmanCase = (&'static str, &'static [u8], Option<&'static [u8]>);
        let cases: [HuffmanCase; 5] = [
            ("localhost", &[0xa0, 0xe4, 0x1d, 0x13, 0x9d, 0x09], None),
            ("%2Fa", &[0x54, 0x58, 0x47], Some(b"loc")),
            ("/a/a", &[0x60, 0x6c, 0x0f], Some(b"loc")),
            ("[::1]", &[0xff, 0xdd, 0xcb, 0x81, 0xff, 0xe7], Some(b"localh")),
            ("nothing", &[], None),
        ];
        for (text, code, replacement) in cases {
            let headers = |flag: u8, value: &[u8]| {
                let length = flag | u8::try_from(value.len()).unwrap();
                frame(HEADERS_FRAME_TYPE, 0x04, 1, &[&[0x41, length], value].concat())
            };
            let expected = replacement.map(|host| headers(0, host));
            assert_eq!(replace_authority(&headers(HUFFMAN_CODED, code)), expected, "{text}");
        }
    }

    #[test]
    fn a_long_authority_counts_its_length_in_more_bytes() {
        let value = "%2F".repeat(60);
        let long = [&[0x41, 0x7f, 53], value.as_bytes()].concat();
        assert_eq!(find_authority_value(&long), Some((1, long.len())));
    }

    /// The first and the second request of grpc-python 1.85.3, which sends names as literals.
    #[test]
    fn authority_with_a_literal_name_is_replaced_in_every_request() {
        let block = |name: &[u8], authority: &str| {
            let length = u8::try_from(authority.len()).expect("short values only");
            let path = b"@\x05:path\x1e/csi.v1.Identity/GetPluginInfo";
            [path, &b"@"[..], name, &[length], authority.as_bytes(), b"\x83\x86"].concat()
        };
        for name in AUTHORITY_NAMES {
            let mut rewriter = AuthorityRewriter::new();
            let greeting = &first_request(PATH)[..PREFACE_LENGTH + FRAME_HEADER_LENGTH];
            assert_eq!(rewriter.rewrite(greeting), greeting);
            let data = frame(0, 1, 1, &[0; 5]);
            for stream in [1, 3] {
                let request = |authority| {
                    let headers = block(name, authority);
                    [frame(HEADERS_FRAME_TYPE, 0x04, stream, &headers), data.clone()].concat()
                };
                assert_eq!(rewriter.rewrite(&request("tmp%2Fd.sock")), request("localhost"));
            }
        }
    }

    #[test]
    fn malformed_header_blocks_are_passed_through() {
        for payload in [&[0x41, 0x7f][..], &[0x41, 0x05, b'a'], &[], &[0x82], &[0xff; 9]] {
            let mut rewriter =
                AuthorityRewriter { state: RewriteState::FrameHeader, buffered: Vec::new() };
            let headers = frame(HEADERS_FRAME_TYPE, 0x04, 1, payload);
            assert_eq!(rewriter.rewrite(&headers), headers, "{payload:?}");
        }
    }

    #[test]
    fn settings_frame_is_passed_through_immediately() {
        let mut rewriter = AuthorityRewriter::new();
        let greeting = &first_request(PATH)[..PREFACE_LENGTH + FRAME_HEADER_LENGTH];
        assert_eq!(rewriter.rewrite(greeting), greeting);
    }

    proptest! {
        #[test]
        fn output_is_independent_of_how_input_is_split(cuts in prop::collection::vec(1_usize..40, 1..40)) {
            let whole = [first_request(PATH), frame(HEADERS_FRAME_TYPE, 0x04, 3, &[0x83, 0xbe])].concat();
            let (mut rewriter, mut passed, mut rest) = (AuthorityRewriter::new(), Vec::new(), &whole[..]);
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                passed.extend(rewriter.rewrite(now));
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            let expected = [first_request("localhost"), frame(HEADERS_FRAME_TYPE, 0x04, 3, &[0x83, 0xbe])].concat();
            prop_assert_eq!(passed, expected);
        }

        #[test]
        fn arbitrary_input_never_panics_or_loses_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut rewriter = AuthorityRewriter { state: RewriteState::FrameHeader, buffered: Vec::new() };
            let passed = rewriter.rewrite(&bytes);
            prop_assert!(passed.len() + rewriter.buffered.len() <= bytes.len());
            // Without a replacement, every byte passes. Each one begins with a length and the letter `l`.
            if !passed.windows(2).any(|pair| pair[0] <= 9 && pair[1] == b'l') {
                prop_assert_eq!([passed, rewriter.buffered].concat(), bytes);
            }
        }
    }
}
