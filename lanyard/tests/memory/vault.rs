//! A scripted proxy for every vault of the public cloud, and a scripted instance metadata service.
//!
//! Secrets whose names start with `large` have 25 KB; all others have a short value whose version tests can
//! increment. The values are generated on request, so that clients can read hundreds of megabytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libtest_mimic::Failed;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// The scripted Azure. It runs until the runtime ends.
#[derive(Debug)]
pub(crate) struct MemoryTestVault {
    proxy: u16,
    metadata: u16,
    ca_file: PathBuf,
    version: Arc<AtomicU64>,
}

impl MemoryTestVault {
    /// Serves on loopback, and writes its CA certificate into `dir`.
    pub(crate) async fn serve(dir: &Path) -> Result<Self, Failed> {
        let authority = dir.join("authority.pem");
        let tls = tls_acceptor(&authority)?;
        let version = Arc::new(AtomicU64::new(1));
        let (proxy, metadata) =
            (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
        let ports = (proxy.local_addr()?.port(), metadata.local_addr()?.port());
        let current = Arc::clone(&version);
        tokio::spawn(async move {
            while let Ok((stream, _)) = proxy.accept().await {
                let (tls, current) = (tls.clone(), Arc::clone(&current));
                // A broken connection must not end the server.
                tokio::spawn(async move { drop(intercept(stream, tls, &current).await) });
            }
        });
        tokio::spawn(async move {
            while let Ok((stream, _)) = metadata.accept().await {
                tokio::spawn(
                    async move { drop(answer_requests(stream, |_| token_response()).await) },
                );
            }
        });
        Ok(Self { proxy: ports.0, metadata: ports.1, ca_file: authority, version })
    }

    pub(crate) fn proxy_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.proxy)
    }

    pub(crate) fn metadata_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.metadata)
    }

    pub(crate) fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// Increments the version of all short secrets.
    pub(crate) fn write_small_secrets(&self) -> u64 {
        self.version.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The value of a short secret.
    pub(crate) fn small_secret_value(version: u64) -> String {
        format!("version {version}")
    }
}

/// A TLS acceptor with a certificate for every vault.
fn tls_acceptor(authority: &Path) -> Result<TlsAcceptor, Failed> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    std::fs::write(authority, params.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let leaf = CertificateParams::new(vec!["*.vault.azure.net".to_owned()])?;
    let leaf = leaf.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_safe_default_protocol_versions()?
    .with_no_client_auth()
    .with_single_cert(vec![leaf.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Answers a `CONNECT` request, then serves as the requested host.
async fn intercept(
    stream: TcpStream,
    tls: TlsAcceptor,
    version: &AtomicU64,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    if read_head(&mut stream).await?.is_none() {
        return Ok(());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    let stream = tls.accept(stream).await?;
    answer_requests(stream, |path| secret_response(path, version.load(Ordering::SeqCst))).await
}

/// Serves requests without a body, one after the other.
async fn answer_requests<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    answer: impl Fn(&str) -> String,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(path) = read_head(&mut stream).await? {
        let body = answer(&path);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.flush().await?;
    }
    Ok(())
}

/// Reads a request head and returns its target; `None` at the end of the connection.
async fn read_head<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
) -> std::io::Result<Option<String>> {
    let mut first = String::new();
    if stream.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 2 {
        line.clear();
    }
    Ok(first.split(' ').nth(1).map(str::to_owned))
}

fn secret_response(target: &str, current: u64) -> String {
    let path = target.split('?').next().unwrap_or_default();
    let mut parts = path.trim_matches('/').split('/').skip(1);
    let (name, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let id = |version: &str| format!("https://any.vault.azure.net/secrets/{name}/{version}");
    let attributes =
        |created: u64| json!({"enabled": true, "created": created, "updated": created});
    if version == "versions" {
        let item = |number: u64| json!({"id": id(&format!("v{number}")), "attributes": attributes(number)});
        return json!({"value": [item(1), item(2), item(3)], "nextLink": null}).to_string();
    }
    let (version, value) = if name.starts_with("large") {
        (if version.is_empty() { "v3" } else { version }.to_owned(), "x".repeat(LARGE_SECRET_SIZE))
    } else {
        (format!("v{current}"), MemoryTestVault::small_secret_value(current))
    };
    // Serializing a large value byte by byte is slow without optimization, and these values need no escapes.
    let (id, attributes) = (id(&version), attributes(1_795_262_400));
    format!(r#"{{"value":"{value}","id":"{id}","attributes":{attributes}}}"#)
}

fn token_response() -> String {
    let lasts = 86_400;
    json!({
        "access_token": "a-token", "token_type": "Bearer", "resource": "https://vault.azure.net",
        "expires_in": lasts.to_string(), "expires_on": (4_000_000_000_u64).to_string(),
    })
    .to_string()
}

/// The largest secret of a vault, in bytes.
const LARGE_SECRET_SIZE: usize = 25 * 1024;
