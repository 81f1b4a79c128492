//! A managed identity token must not cross a proxy, whatever the environment configures.
//!
//! Proxy settings come from the environment of a process, so the test runs itself in a child process.

#![cfg(test)]

use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use azure_core::credentials::TokenCredential as _;
use lanyard_credential::{
    ManagedIdentityCredential, ManagedIdentitySettings, TokenTransportOptions,
};

const IMDS: &str = "LANYARD_TEST_IMDS";
const NAME: &str = "the_proxies_of_the_environment_are_not_used_for_managed_identity";

/// The child process, which has the variable set, is the client.
#[test]
#[expect(clippy::disallowed_methods, reason = "the only way to hear from the parent process")]
fn the_proxies_of_the_environment_are_not_used_for_managed_identity() {
    if let Ok(imds) = std::env::var(IMDS) {
        return request_token(imds);
    }
    let imds = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", NAME]).env(IMDS, url(&imds));
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(variable, url(&proxy));
    }
    for variable in ["NO_PROXY", "no_proxy"] {
        child.env_remove(variable);
    }
    let asked = std::thread::spawn(move || serve_one_request(&imds, "200 OK"));
    // Rejects requests, so that a misrouted request ends the child process immediately.
    let astray = std::thread::spawn(move || serve_one_request(&proxy, "400 Bad Request"));
    assert!(child.status().unwrap().success());
    assert!(asked.join().unwrap().unwrap().starts_with("GET /metadata/identity/oauth2/token?"));
    assert!(!astray.is_finished());
}

/// The child process. The SDK's client would use the proxy here.
#[tokio::main(flavor = "current_thread")]
async fn request_token(imds: String) {
    let mut settings = ManagedIdentitySettings::default();
    settings.imds_host = Some(imds);
    let options = TokenTransportOptions::default();
    let credential = ManagedIdentityCredential::new(settings, options).unwrap();
    let token = credential.get_token(&["https://vault.azure.net/.default"], None).await.unwrap();
    assert_eq!(token.token.secret(), "t");
}

fn serve_one_request(listener: &TcpListener, status: &str) -> io::Result<String> {
    let (mut stream, _) = listener.accept()?;
    let mut request = vec![0; 4_096];
    let length = stream.read(&mut request)?;
    let body = r#"{"access_token":"t","expires_in":"3600"}"#;
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes())?;
    Ok(String::from_utf8_lossy(&request[..length]).into_owned())
}
