use lanyard_clock::ErrorHint as _;

use super::*;

const AGENT: UserAgent = UserAgent::from_static("lanyard-test/1.0");

#[test]
fn addresses_of_every_family_become_urls() {
    assert_eq!(server_url("10.0.0.1", 443), "https://10.0.0.1:443");
    assert_eq!(server_url("fd00::1", 6443), "https://[fd00::1]:6443");
    assert_eq!(server_url("api.example", 443), "https://api.example:443");
}

#[tokio::test]
async fn missing_service_account_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let access = ApiAccess::InCluster {
        host: "10.0.0.1".to_owned(),
        port: 443,
        service_account: directory.path().to_owned(),
    };
    let error = access.connections(AGENT).await.err().unwrap();
    assert!(matches!(error, AccessError::NoServiceAccount { .. }), "{error}");
    assert!(error.hint().unwrap().contains("--kubeconfig"));
}

const KUBECONFIG: &str = r#"
current-context: here
contexts: [{name: here, context: {cluster: c, user: u, namespace: clusters}}, {name: there, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}]
"#;
const USERS: &str = r#"users: [{name: u, user: {token: "t"}}]"#;

#[tokio::test]
async fn kubeconfig_files_merge_and_have_a_context_with_its_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let files = ["absent", "contexts", "users"].map(|name| directory.path().join(name));
    std::fs::write(&files[1], KUBECONFIG).unwrap();
    std::fs::write(&files[2], USERS).unwrap();
    let selected = async |context: Option<&str>| {
        let context = context.map(str::to_owned);
        let access = KubectlAccess { files: files.to_vec(), context };
        access.load_config().await.map(|(_, context)| context)
    };
    let context = |name: &str, namespace: &str| KubectlContext {
        name: Some(name.to_owned()),
        namespace: namespace.to_owned(),
    };
    assert_eq!(selected(None).await.unwrap(), context("here", "clusters"));
    assert_eq!(selected(Some("there")).await.unwrap(), context("there", "default"));
    let error = selected(Some("nowhere")).await.unwrap_err();
    assert!(matches!(error, AccessError::Kubeconfig { .. }), "{error}");
}

#[tokio::test]
async fn missing_kubeconfig_error_lists_paths() {
    let files = vec![PathBuf::from("/nonexistent/a"), PathBuf::from("/nonexistent/b")];
    let access = KubectlAccess { files, context: None };
    let error = access.load_config().await.unwrap_err();
    let expected = "no kubeconfig file found: /nonexistent/a, /nonexistent/b";
    assert_eq!(error.to_string(), expected);
}

fn kubectl_access(directory: &Path, cluster: &str) -> KubectlAccess {
    let path = directory.join("kubeconfig");
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\n{USERS}\n"
    );
    std::fs::write(&path, text).unwrap();
    KubectlAccess { files: vec![path], context: None }
}

#[tokio::test]
async fn loopback_server_uses_only_kubeconfig_proxy() {
    let directory = tempfile::tempdir().unwrap();
    let proxy_of = async |cluster: &str| {
        let (config, _) = kubectl_access(directory.path(), cluster).load_config().await.unwrap();
        config.proxy_url.map(|proxy| proxy.to_string())
    };
    for host in ["127.0.0.1", "127.8.0.1", "[::1]", "localhost"] {
        let server = format!(r#"server: "https://{host}:6443""#);
        assert_eq!(proxy_of(&server).await, None, "{host}");
        let proxy = "socks5://bastion:1080/";
        let with_proxy = format!(r#"{server}, proxy-url: "{proxy}""#);
        assert_eq!(proxy_of(&with_proxy).await.as_deref(), Some(proxy), "{host}");
    }
}

/// The proxy receives one CONNECT request and rejects it.
#[tokio::test]
async fn requests_go_through_the_proxy_of_the_file() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let address = proxy.local_addr().unwrap();
    let cluster = format!(
        r#"server: "https://private.example:443", insecure-skip-tls-verify: true, proxy-url: "http://{address}""#
    );
    let access = kubectl_access(directory.path(), &cluster);
    let (connections, _) = access.connections(AGENT).await.unwrap();
    let received = async {
        let (mut stream, _) = proxy.accept().await.unwrap();
        let mut received = vec![0; 1024];
        let length = stream.read(&mut received).await.unwrap();
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await.unwrap();
        String::from_utf8_lossy(&received[..length]).into_owned()
    };
    let (received, answer) =
        futures::future::join(received, connections.for_calls().apiserver_version()).await;
    assert!(received.starts_with("CONNECT private.example:443"), "{received}");
    assert!(answer.is_err());
}

#[tokio::test]
async fn missing_kubeconfig_error_names_file() {
    let path = PathBuf::from("/nonexistent/kubeconfig");
    let error = ApiAccess::Kubeconfig(path).connections(AGENT).await.err().unwrap();
    assert_eq!(error.to_string(), "could not use the kubeconfig file /nonexistent/kubeconfig");
}
