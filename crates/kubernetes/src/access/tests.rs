use super::*;

const AGENT: UserAgent = UserAgent::from_static("lanyard-test/1.0");

#[test]
fn addresses_of_every_family_become_urls() {
    assert_eq!(address_of("10.0.0.1", 443), "https://10.0.0.1:443");
    assert_eq!(address_of("fd00::1", 6443), "https://[fd00::1]:6443");
    assert_eq!(address_of("api.example", 443), "https://api.example:443");
}

#[tokio::test]
async fn a_pod_without_a_service_account_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let access = ApiAccess::InCluster {
        host: "10.0.0.1".to_owned(),
        port: 443,
        service_account: directory.path().to_owned(),
    };
    let error = access.connections(AGENT).await.err().unwrap();
    assert!(matches!(error, AccessError::NoServiceAccount { .. }), "{error}");
    assert!(error.hint().contains("--kubeconfig"));
}

const KUBECONFIG: &str = r#"
current-context: here
contexts: [{name: here, context: {cluster: c, user: u, namespace: clusters}}, {name: there, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}]
"#;
const USERS: &str = r#"users: [{name: u, user: {token: "t"}}]"#;

#[tokio::test]
async fn a_persons_files_are_merged_and_the_context_says_the_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let files = ["absent", "contexts", "users"].map(|name| directory.path().join(name));
    std::fs::write(&files[1], KUBECONFIG).unwrap();
    std::fs::write(&files[2], USERS).unwrap();
    let namespace_of = async |context: Option<&str>| {
        let context = context.map(str::to_owned);
        let access = PersonalAccess { files: files.to_vec(), context };
        access.resolve().await.map(|server| server.namespace().to_owned())
    };
    assert_eq!(namespace_of(None).await.unwrap(), "clusters");
    assert_eq!(namespace_of(Some("there")).await.unwrap(), "default");
    let error = namespace_of(Some("nowhere")).await.unwrap_err();
    assert!(matches!(error, AccessError::Kubeconfig { .. }), "{error}");
}

#[tokio::test]
async fn a_person_without_any_file_is_told_where_they_were_looked_for() {
    let files = vec![PathBuf::from("/nonexistent/a"), PathBuf::from("/nonexistent/b")];
    let access = PersonalAccess { files, context: None };
    let error = access.resolve().await.unwrap_err();
    let told = "there is no kubeconfig file: /nonexistent/a, /nonexistent/b";
    assert_eq!(error.to_string(), told);
}

fn personal(directory: &Path, cluster: &str) -> PersonalAccess {
    let path = directory.join("kubeconfig");
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\n{USERS}\n"
    );
    std::fs::write(&path, text).unwrap();
    PersonalAccess { files: vec![path], context: None }
}

#[tokio::test]
async fn a_server_is_on_this_machine_by_its_address_and_without_a_proxy_alone() {
    let directory = tempfile::tempdir().unwrap();
    let is_here = async |cluster: &str| {
        personal(directory.path(), cluster).resolve().await.unwrap().is_on_this_machine()
    };
    for host in ["127.0.0.1", "127.8.0.1", "[::1]", "localhost"] {
        assert!(is_here(&format!(r#"server: "https://{host}:6443""#)).await, "{host}");
        for proxy in ["socks5://bastion:1080", "http://127.0.0.1:3128"] {
            let cluster = format!(r#"server: "https://{host}:6443", proxy-url: "{proxy}""#);
            assert!(!is_here(&cluster).await, "{cluster}");
        }
        let unset = format!(r#"server: "https://{host}:6443", proxy-url: """#);
        assert!(is_here(&unset).await, "{unset}");
    }
    for host in ["10.0.0.1", "example.com", "localhost.example.com", "0.0.0.0", "[fe80::1]"] {
        assert!(!is_here(&format!(r#"server: "https://{host}:6443""#)).await, "{host}");
    }
}

#[tokio::test]
async fn a_proxy_is_told_without_its_password_and_the_server_without_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let cluster =
        r#"server: "https://aks.example:443/", proxy-url: "http://me:secret@bastion:3128""#;
    let server = personal(directory.path(), cluster).resolve().await.unwrap();
    assert_eq!(server.url(), "https://aks.example:443");
    assert_eq!(server.proxy().unwrap(), "http://bastion:3128");
    let told = format!("{server:?}");
    assert!(told.contains("bastion") && !told.contains("secret"), "{told}");
}

#[tokio::test]
async fn who_connects_asks_the_server_that_was_read_whatever_becomes_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let access = personal(directory.path(), r#"server: "https://127.0.0.1:1""#);
    let server = access.resolve().await.unwrap();
    let other = personal(directory.path(), r#"server: "https://prod.example""#);
    assert_eq!(other.resolve().await.unwrap().url(), "https://prod.example");
    assert_eq!(server.url(), "https://127.0.0.1:1");
    assert!(server.connections(AGENT).is_ok());
}

/// A proxy that hears one request for a way, and refuses it.
#[tokio::test]
async fn requests_go_through_the_proxy_of_the_file() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let address = proxy.local_addr().unwrap();
    let cluster = format!(
        r#"server: "https://private.example:443", insecure-skip-tls-verify: true, proxy-url: "http://{address}""#
    );
    let server = personal(directory.path(), &cluster).resolve().await.unwrap();
    let connections = server.connections(AGENT).unwrap();
    let heard = async {
        let (mut stream, _) = proxy.accept().await.unwrap();
        let mut heard = vec![0; 1024];
        let length = stream.read(&mut heard).await.unwrap();
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await.unwrap();
        String::from_utf8_lossy(&heard[..length]).into_owned()
    };
    let (heard, answer) =
        futures::future::join(heard, connections.for_calls().apiserver_version()).await;
    assert!(heard.starts_with("CONNECT private.example:443"), "{heard}");
    assert!(answer.is_err());
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there_is_named() {
    let path = PathBuf::from("/nonexistent/kubeconfig");
    let error = ApiAccess::Kubeconfig(path).connections(AGENT).await.err().unwrap();
    assert_eq!(error.to_string(), "could not use the kubeconfig file /nonexistent/kubeconfig");
}
