//! A custom cloud through real connections, without a proxy.

use http::StatusCode;

use super::*;

const HOST: &str = "management.azure.test";

/// A client that resolves the custom host to the listener.
fn resolving_client(emulator: &Emulator, roots: &str) -> reqwest::Client {
    let authority = reqwest::Certificate::from_pem(roots.as_bytes()).unwrap();
    reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([authority])
        .resolve(HOST, emulator.address())
        .build()
        .unwrap()
}

fn builder(directory: &std::path::Path, domain: Option<&str>) -> EmulatorBuilder {
    let builder = Emulator::builder().state_dir(directory);
    match domain {
        Some(domain) => builder.cloud_domain(domain.parse().unwrap()),
        None => builder,
    }
}

async fn read_login_endpoint(emulator: &Emulator) -> String {
    let url = emulator.custom_cloud_url().unwrap();
    let url = format!("{url}/metadata/endpoints?api-version=2022-09-01");
    let client = resolving_client(emulator, emulator.ca_pem());
    let response = client.get(url).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let document = response_json(response).await;
    document["authentication"]["loginEndpoint"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn custom_cloud_is_served_without_a_proxy_and_restarts_on_another_port() {
    let directory = tempfile::tempdir().unwrap();
    let without = builder(directory.path(), None).start().await.unwrap();
    assert_eq!(without.custom_cloud_url(), None);
    let first_authority = without.ca_pem().to_owned();
    without.shutdown().await;
    let mut authorities = vec![first_authority];
    for _ in 0..2 {
        let emulator = builder(directory.path(), Some("azure.test")).start().await.unwrap();
        let port = emulator.address().port();
        assert_eq!(emulator.custom_cloud_url(), Some(format!("https://{HOST}:{port}")));
        let login = read_login_endpoint(&emulator).await;
        assert_eq!(login, format!("https://login.azure.test:{port}/"));
        authorities.push(emulator.ca_pem().to_owned());
        emulator.shutdown().await;
    }
    assert_ne!(authorities[0], authorities[1], "the CA may sign the custom names");
    assert_eq!(authorities[1], authorities[2], "the extended CA is stored");
}

#[tokio::test]
async fn emulators_with_different_domains_run_in_one_process() {
    let start = async |domain: &str| {
        let builder = Emulator::builder().cloud_domain(domain.parse().unwrap());
        builder.start().await.unwrap()
    };
    let (one, other) = (start("one.test").await, start("other.test").await);
    assert!(one.custom_cloud_url().unwrap().starts_with("https://management.one.test:"));
    assert!(other.custom_cloud_url().unwrap().starts_with("https://management.other.test:"));
    let url = |emulator: &Emulator| format!("https://{HOST}:{}/", emulator.address().port());
    let refused = resolving_client(&one, one.ca_pem()).get(url(&one)).send().await;
    assert!(refused.is_err(), "the domain of neither emulator");
}
