//! What a statically linked client needs around it.

use super::archive::Entry;
use super::roots;

/// Where TLS clients look for roots by default. As the directory of roots is named too, a file
/// that `SSL_CERT_FILE` names adds to them and does not replace them.
const ROOTS_DIRECTORY: &str = "/etc/ssl/certs";

/// Variables of the image.
pub(super) fn environment() -> Vec<String> {
    vec![format!("SSL_CERT_DIR={ROOTS_DIRECTORY}")]
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
        assert_eq!(environment(), ["SSL_CERT_DIR=/etc/ssl/certs"]);
    }
}
