//! The floor of the benchmark `cargo xtask bench azure`: a TLS server with the HTTP stack of the local Azure,
//! which returns the same response to every request without any work.

use std::convert::Infallible;
use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use clap::Parser;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// The allocator of the local Azure.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Answer every request with the same response
#[derive(Debug, Parser)]
#[command(name = "bare-tls-server")]
struct ServerArgs {
    /// Certificate chain in PEM
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,
    /// Private key in PEM
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Response: a JSON object with `status`, `headers` (pairs of name and value) and `body`
    #[arg(long, value_name = "FILE")]
    response: PathBuf,
}

/// The response in the file.
#[derive(Debug, Deserialize)]
struct ResponseFile {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

/// The response, ready to be sent.
#[derive(Debug)]
struct FixedResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = ServerArgs::parse();
    let response = Arc::new(FixedResponse::load(&arguments)?);
    let acceptor = tls_acceptor(&arguments)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    writeln!(std::io::stdout().lock(), "{}", listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve_connection(stream, acceptor.clone(), Arc::clone(&response)));
    }
}

impl FixedResponse {
    fn load(arguments: &ServerArgs) -> Result<Self, Box<dyn Error>> {
        let file: ResponseFile = serde_json::from_slice(&fs::read(&arguments.response)?)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &file.headers {
            headers.append(name.parse::<HeaderName>()?, value.parse::<HeaderValue>()?);
        }
        let status = StatusCode::from_u16(file.status)?;
        Ok(Self { status, headers, body: Bytes::from(file.body) })
    }

    fn to_response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body.clone()));
        *response.status_mut() = self.status;
        response.headers_mut().clone_from(&self.headers);
        response
    }
}

fn tls_acceptor(arguments: &ServerArgs) -> Result<TlsAcceptor, Box<dyn Error>> {
    let chain = CertificateDer::pem_file_iter(&arguments.certificate)?;
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(&arguments.key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves a connection until the client closes it.
async fn serve_connection(stream: TcpStream, acceptor: TlsAcceptor, response: Arc<FixedResponse>) {
    // The benchmark reports a connection that ends early as a failed request.
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|_| std::future::ready(Ok::<_, Infallible>(response.to_response())));
    let builder = auto::Builder::new(TokioExecutor::new());
    drop(builder.serve_connection(TokioIo::new(stream), service).await);
}
