//! What a statically linked client needs around it.

use super::archive::ImageEntry;
use super::{ImageKind, public_roots};

/// Where TLS clients look for roots by default. As the directory of roots is named too, a file
/// that `SSL_CERT_FILE` names adds to them and does not replace them.
const ROOTS_DIRECTORY: &str = "/etc/ssl/certs";

/// One heap for all threads (mallopt(3)): heaps of their own keep memory that is free.
const ONE_HEAP: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

/// No cache of free memory per thread (the manual of the GNU C Library, "Memory Allocation Tunables").
/// The threads that mount volumes come and go, and what their caches hold splits the heap: without them
/// a node plugin with a hundred volumes takes 1 MiB less.
const NO_THREAD_CACHE: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");

/// The variables of an image that set up the allocator.
pub(crate) const fn allocator_variables(
    product: ImageKind,
) -> &'static [(&'static str, &'static str)] {
    match product {
        ImageKind::Node => &[ONE_HEAP, NO_THREAD_CACHE],
        ImageKind::Lanyard | ImageKind::Azure => &[ONE_HEAP],
    }
}

/// The variables of an image.
pub(super) fn image_environment(product: ImageKind) -> Vec<String> {
    let allocator =
        allocator_variables(product).iter().map(|(name, value)| format!("{name}={value}"));
    std::iter::once(roots_variable()).chain(allocator).collect()
}

/// The variable that a TLS client needs.
pub(super) fn roots_variable() -> String {
    format!("SSL_CERT_DIR={ROOTS_DIRECTORY}")
}

/// Roots, and what glibc's resolver reads. Who the name server is, the kubelet says by mounting
/// `/etc/resolv.conf`.
pub(super) fn client_base_files() -> Vec<ImageEntry> {
    vec![
        ImageEntry::file(
            "etc/ssl/certs/ca-certificates.crt",
            public_roots::pem_bundle().into_bytes(),
        ),
        ImageEntry::file("etc/nsswitch.conf", b"hosts: files dns\n".to_vec()),
        ImageEntry::file("etc/passwd", b"root:x:0:0:root:/:/sbin/nologin\n".to_vec()),
        ImageEntry::file("etc/group", b"root:x:0:\n".to_vec()),
        ImageEntry::directory("tmp", 0o1777),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_is_where_clients_look() {
        let bundle = format!("{}/ca-certificates.crt", ROOTS_DIRECTORY.trim_start_matches('/'));
        assert!(client_base_files().iter().any(|entry| entry.path() == bundle));
        assert_eq!(image_environment(ImageKind::Node)[0], "SSL_CERT_DIR=/etc/ssl/certs");
    }
}
