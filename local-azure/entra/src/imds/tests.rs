use lanyard_emulator::testing::{
    EngineFixture, FEDERATED, MSI, azure_with_test_principals, principal_mut, reply_json,
    token_claims,
};
use lanyard_emulator_core::ingress::{IMDS_HOST, Ingress};

use super::*;

const TRUE: (&str, &str) = ("metadata", "true");
const TOKEN: &str = "metadata/identity/oauth2/token";

fn send_imds_request(probe: &EngineFixture, path: &str, headers: &[(&str, &str)]) -> ServiceReply {
    probe.get(Ingress::Proxy, &format!("http://{IMDS_HOST}/{path}"), headers)
}

#[test]
fn a_token_comes_with_every_value_as_text() {
    let probe = EngineFixture::new(azure_with_test_principals());
    for version in ["2018-02-01", "2019-08-01"] {
        let path =
            format!("{TOKEN}?api-version={version}&resource=https://management.core.windows.net/");
        let reply = reply_json(&send_imds_request(&probe, &path, &[("Metadata", "True")]));
        assert_eq!(reply["expires_in"], "86399");
        assert!(reply["expires_on"].as_str().unwrap().parse::<i64>().is_ok());
        assert!(reply["not_before"].is_string());
        assert_eq!(reply["resource"], "https://management.core.windows.net/");
        assert_eq!(reply["client_id"], MSI);
        let found = token_claims(reply["access_token"].as_str().unwrap());
        assert_eq!(found["aud"], "https://management.core.windows.net/");
        assert!(found["tid"].is_string(), "az dies without it");
    }
}

/// A description, the path, and the headers.
type InvalidImdsRequest<'a> = (&'a str, String, Vec<(&'a str, &'a str)>);

#[test]
fn invalid_requests_are_rejected_with_400() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let good = format!("{TOKEN}?api-version=2018-02-01&resource=https://vault.azure.net");
    let cases: [InvalidImdsRequest<'_>; 11] = [
        ("no header, as the probe of azidentity", good.clone(), vec![]),
        ("header of another value", good.clone(), vec![("metadata", "1")]),
        ("forwarded by a proxy", good.clone(), vec![TRUE, ("x-forwarded-for", "10.0.0.1")]),
        ("no version", format!("{TOKEN}?resource=https://vault.azure.net"), vec![TRUE]),
        (
            "malformed version",
            format!("{TOKEN}?api-version=new&resource=https://vault.azure.net"),
            vec![TRUE],
        ),
        ("no resource", format!("{TOKEN}?api-version=2018-02-01"), vec![TRUE]),
        (
            "unknown resource",
            format!("{TOKEN}?api-version=2018-02-01&resource=https://example.com"),
            vec![TRUE],
        ),
        ("an identity of another machine", format!("{good}&client_id={FEDERATED}"), vec![TRUE]),
        ("no identity", format!("{good}&client_id=unknown"), vec![TRUE]),
        ("no such resource id", format!("{good}&msi_res_id=/subscriptions/x"), vec![TRUE]),
        (
            "two selectors",
            format!("{good}&client_id={MSI}&object_id=00000000-0000-0000-0000-0000000000c2"),
            vec![TRUE],
        ),
    ];
    for (name, path, headers) in cases {
        let reply = send_imds_request(&probe, &path, &headers);
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{name}");
        assert!(reply_json(&reply)["error_description"].is_string(), "{name}");
        assert!(reply.rejection_reason.is_some(), "{name}");
    }
}

#[test]
fn the_identity_is_selected_by_any_of_its_ids() {
    let mut azure = azure_with_test_principals();
    let federated = principal_mut(&mut azure, FEDERATED).clone();
    azure.imds.default_node.assigned.push(federated.client_id);
    let probe = EngineFixture::new(azure);
    let good = format!("{TOKEN}?api-version=2018-02-01&resource=https://vault.azure.net");
    let ambiguous = send_imds_request(&probe, &good, &[TRUE]);
    assert_eq!(ambiguous.status, StatusCode::BAD_REQUEST);
    let description = reply_json(&ambiguous)["error_description"].as_str().unwrap().to_owned();
    assert!(description.starts_with("Multiple user assigned identities"), "{description}");
    let resource = federated.resource_id().unwrap().to_string().to_uppercase();
    for selector in [
        format!("client_id={FEDERATED}"),
        format!("object_id={}", federated.object_id),
        format!("principal_id={}", federated.object_id),
        format!("msi_res_id={resource}"),
        format!("mi_res_id={resource}"),
    ] {
        let reply = send_imds_request(&probe, &format!("{good}&{selector}"), &[TRUE]);
        assert_eq!(reply.status, StatusCode::OK, "{selector}: {}", reply_json(&reply));
        assert_eq!(reply_json(&reply)["client_id"], FEDERATED, "{selector}");
    }
}

#[test]
fn a_disabled_or_absent_identity_gets_no_token() {
    let good = format!("{TOKEN}?api-version=2018-02-01&resource=https://vault.azure.net");
    let mut disabled = azure_with_test_principals();
    principal_mut(&mut disabled, MSI).enabled = false;
    let reply = send_imds_request(&EngineFixture::new(disabled), &good, &[TRUE]);
    assert_eq!(reply.rejection_reason.as_deref(), Some("AADSTS7000112"));
    let mut gone = azure_with_test_principals();
    let removed = principal_mut(&mut gone, MSI).object_id;
    gone.directory.remove_service_principal(removed);
    let reply = send_imds_request(&EngineFixture::new(gone), &good, &[TRUE]);
    assert_eq!(reply_json(&reply)["error_description"], "Identity not found");
}

#[test]
fn instance_metadata_contains_only_the_machine() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let path = "metadata/instance/compute?api-version=2021-02-01";
    let compute = reply_json(&send_imds_request(&probe, path, &[TRUE]));
    assert_eq!(compute["location"], "eastus");
    let path = "metadata/instance/compute/location?api-version=2021-02-01&format=text";
    assert_eq!(send_imds_request(&probe, path, &[TRUE]).body, "eastus");
    assert_eq!(send_imds_request(&probe, path, &[]).status, StatusCode::BAD_REQUEST);
    let versions = reply_json(&send_imds_request(&probe, "metadata/versions", &[TRUE]));
    assert!(versions["apiVersions"].as_array().unwrap().contains(&"2018-02-01".into()));
    let attested =
        send_imds_request(&probe, "metadata/attested/document?api-version=2021-02-01", &[TRUE]);
    assert_eq!(attested.status, StatusCode::NOT_IMPLEMENTED);
}

/// A fixture with a second node, `worker-1`, which has only the federated identity.
fn azure_with_second_node(client_addresses: &[&str]) -> EngineFixture {
    let mut azure = azure_with_test_principals();
    let node = ImdsNode {
        assigned: vec![FEDERATED.parse().unwrap()],
        machine: ImdsMachine { name: "worker-1".to_owned(), ..ImdsMachine::default() },
        client_addresses: client_addresses.iter().map(|one| one.parse().unwrap()).collect(),
    };
    azure.imds.nodes.insert("worker-1".to_owned(), node);
    EngineFixture::new(azure)
}

const VAULT_TOKEN: &str =
    "metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://vault.azure.net";

#[test]
fn node_in_the_path_answers_with_its_own_identity() {
    let probe = azure_with_second_node(&[]);
    let client_of = |base: &str| {
        let url = format!("http://127.0.0.1:7750/{base}{VAULT_TOKEN}");
        reply_json(&probe.get(Ingress::Port, &url, &[TRUE]))["client_id"].clone()
    };
    assert_eq!(client_of(""), MSI);
    assert_eq!(client_of("nodes/worker-1/"), FEDERATED);
    let url = format!("http://127.0.0.1:7750/nodes/worker-1/{VAULT_TOKEN}&client_id={MSI}");
    let other = probe.get(Ingress::Port, &url, &[TRUE]);
    assert_eq!(other.status, StatusCode::BAD_REQUEST);
    assert_eq!(reply_json(&other)["error_description"], "Identity not found");
    let url = format!("http://127.0.0.1:7750/nodes/worker-2/{VAULT_TOKEN}");
    assert_eq!(probe.get(Ingress::Port, &url, &[TRUE]).status, StatusCode::NOT_FOUND);
    let path =
        "http://127.0.0.1:7750/nodes/worker-1/metadata/instance/compute?api-version=2021-02-01";
    assert_eq!(reply_json(&probe.get(Ingress::Port, path, &[TRUE]))["name"], "worker-1");
    let path = "http://127.0.0.1:7750/nodes/worker-1/msi/token?api-version=2019-08-01\
                &resource=https://vault.azure.net";
    let header = ("x-identity-header", "s3cret-header");
    let app_service = reply_json(&probe.get(Ingress::Port, path, &[header]));
    assert_eq!(app_service["client_id"], FEDERATED);
}

#[test]
fn node_is_selected_by_the_user_name_at_the_proxy() {
    let probe = azure_with_second_node(&[]);
    let ask = |user: &str| {
        let header = format!("Basic {}", base64_of(&format!("{user}:")));
        send_imds_request(&probe, VAULT_TOKEN, &[TRUE, ("proxy-authorization", &header)])
    };
    assert_eq!(reply_json(&ask("worker-1"))["client_id"], FEDERATED);
    assert_eq!(ask("worker-2").status, StatusCode::NOT_FOUND);
    assert_eq!(reply_json(&ask(""))["client_id"], MSI);
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[test]
fn node_is_selected_by_the_address_of_the_client() {
    // The fixture sends its requests from 127.0.0.1.
    let bound = send_imds_request(&azure_with_second_node(&["127.0.0.1"]), VAULT_TOKEN, &[TRUE]);
    assert_eq!(reply_json(&bound)["client_id"], FEDERATED);
    let other = send_imds_request(&azure_with_second_node(&["127.0.0.2"]), VAULT_TOKEN, &[TRUE]);
    assert_eq!(reply_json(&other)["client_id"], MSI);
}

#[test]
fn injected_status_of_one_node_has_the_error_format_of_the_service() {
    let mut azure = azure_with_test_principals();
    let rule = serde_json::json!({
        "name": "updating", "service": "imds", "path": "/nodes/worker-1/*",
        "effect": { "type": "status", "status": 410 },
    });
    azure.faults.insert(serde_json::from_value(rule).unwrap());
    let probe = EngineFixture::new(azure);
    let url = format!("http://127.0.0.1:7750/nodes/worker-1/{VAULT_TOKEN}");
    let reply = probe.get(Ingress::Port, &url, &[TRUE]);
    assert_eq!(reply.status, StatusCode::GONE);
    assert!(reply_json(&reply)["error_description"].is_string());
    assert_eq!(send_imds_request(&probe, VAULT_TOKEN, &[TRUE]).status, StatusCode::OK);
}
