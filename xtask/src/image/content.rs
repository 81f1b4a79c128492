//! What a statically linked client needs around it.

use super::archive::Entry;
use super::roots;

/// Where TLS clients look for roots by default. As the directory of roots is named too, a file
/// that `SSL_CERT_FILE` names adds to them and does not replace them.
const ROOTS_DIRECTORY: &str = "/etc/ssl/certs";

/// One heap for all threads (mallopt(3)): a node plugin has little in it, and heaps of their own
/// keep what is free.
pub(crate) const ALLOCATOR: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

/// Variables of the image.
pub(super) fn environment() -> Vec<String> {
    let (allocator, setting) = ALLOCATOR;
    vec![format!("SSL_CERT_DIR={ROOTS_DIRECTORY}"), format!("{allocator}={setting}")]
}

/// Roots, and what glibc's resolver reads. Who the name server is, the kubelet says by mounting
/// `/etc/resolv.conf`.
pub(super) fn around_a_client() -> Vec<Entry> {
    vec![
        Entry::file("etc/ssl/certs/ca-certificates.crt", roots::bundle().into_bytes()),
        Entry::file("etc/nsswitch.conf", b"hosts: files dns\n".to_vec()),
        Entry::file("etc/passwd", b"root:x:0:0:root:/:/sbin/nologin\n".to_vec()),
        Entry::file("etc/group", b"root:x:0:\n".to_vec()),
        Entry::directory("tmp", 0o1777),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_is_where_clients_look() {
        let bundle = format!("{}/ca-certificates.crt", ROOTS_DIRECTORY.trim_start_matches('/'));
        assert!(around_a_client().iter().any(|entry| entry.path() == bundle));
        assert_eq!(environment()[0], "SSL_CERT_DIR=/etc/ssl/certs");
    }
}
