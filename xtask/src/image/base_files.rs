//! The files and variables that a statically linked TLS client needs in an image.

use super::archive::ImageEntry;
use super::{ImageKind, public_roots};

/// The default directory of root certificates. It is also set explicitly, so that a file in `SSL_CERT_FILE`
/// adds to the roots instead of replacing them.
const ROOTS_DIRECTORY: &str = "/etc/ssl/certs";

/// One heap for all threads (mallopt(3)): separate heaps keep free memory.
const ONE_HEAP: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

/// No cache of free memory per thread (the manual of the GNU C Library, "Memory Allocation Tunables"). The
/// threads that mount volumes are short-lived, and the content of their caches fragments the heap: without
/// the caches, a node plugin with a hundred volumes needs 1 MiB less.
const NO_THREAD_CACHE: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");

/// mimalloc returns free memory to the system at once: an idle local Azure needs 0.6 MiB less. mimalloc is the
/// allocator of Rust code; C code uses that of the GNU C Library.
const RETURN_FREE_MEMORY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "0");

/// The environment variables of an image that configure the allocator.
pub(crate) const fn allocator_variables(
    image_kind: ImageKind,
) -> &'static [(&'static str, &'static str)] {
    match image_kind {
        ImageKind::Node => &[ONE_HEAP, NO_THREAD_CACHE],
        ImageKind::Lanyard => &[ONE_HEAP],
        ImageKind::Azure => &[ONE_HEAP, RETURN_FREE_MEMORY],
    }
}

/// The environment variables of an image.
pub(super) fn image_environment(image_kind: ImageKind) -> Vec<String> {
    let allocator =
        allocator_variables(image_kind).iter().map(|(name, value)| format!("{name}={value}"));
    std::iter::once(roots_variable()).chain(allocator).collect()
}

/// The environment variable that TLS clients need.
pub(super) fn roots_variable() -> String {
    format!("SSL_CERT_DIR={ROOTS_DIRECTORY}")
}

/// The root certificates, and the files that glibc's resolver reads. The kubelet configures the name server
/// by mounting `/etc/resolv.conf`.
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
    fn ca_bundle_is_in_the_roots_directory() {
        let bundle = format!("{}/ca-certificates.crt", ROOTS_DIRECTORY.trim_start_matches('/'));
        assert!(client_base_files().iter().any(|entry| entry.path() == bundle));
        for image_kind in ImageKind::ALL {
            assert_eq!(image_environment(image_kind)[0], "SSL_CERT_DIR=/etc/ssl/certs");
        }
    }

    #[test]
    fn variables_configure_the_allocators_of_each_image() {
        let variables =
            ImageKind::ALL.map(|image_kind| image_environment(image_kind)[1..].join(" "));
        let expected = [
            "MALLOC_ARENA_MAX=1 GLIBC_TUNABLES=glibc.malloc.tcache_count=0",
            "MALLOC_ARENA_MAX=1",
            "MALLOC_ARENA_MAX=1 MIMALLOC_PURGE_DELAY=0",
        ];
        assert_eq!(variables, expected);
    }
}
