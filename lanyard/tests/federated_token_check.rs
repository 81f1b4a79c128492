//! Runs `lanyard credential check --federated-token` against a local Azure.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "azure/azure_serve_process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod azure_serve_process;
#[path = "infra_commands/infra_workspace.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod infra_workspace;

use infra_workspace::InfraWorkspace;
use reqwest::Method;
use serde_json::{Value, json};

const AUDIENCE: &str = "api://AzureADTokenExchange";

/// A local Azure with an application that has one federated credential.
struct FederatedApplication {
    workspace: InfraWorkspace,
    client: String,
    issuer: String,
    subject: String,
}

impl FederatedApplication {
    fn start() -> Self {
        let workspace = InfraWorkspace::start();
        let clients = workspace.control(Method::GET, "test-clients", None);
        let text = |key: &str| clients["federated"][key].as_str().unwrap().to_owned();
        let (client, issuer, subject) = (text("clientId"), text("issuer"), text("subject"));
        Self { workspace, client, issuer, subject }
    }

    /// Writes the token that the issuer projects for a subject and an audience; returns its text.
    fn project_token(&self, subject: &str, audience: &str) -> String {
        let wanted = json!({ "subject": subject, "audience": audience });
        let minted = self.workspace.control(Method::POST, "federated-token", Some(wanted));
        let token = minted["token"].as_str().unwrap().to_owned();
        std::fs::write(self.workspace.files().join("token"), &token).unwrap();
        token
    }

    /// Writes the output of `az identity federated-credential list` with one credential `x`.
    fn list_credential(&self, issuer: &str, subject: &str) {
        let list =
            json!([{ "name": "x", "issuer": issuer, "subject": subject, "audiences": [AUDIENCE] }]);
        std::fs::write(self.workspace.files().join("list.json"), list.to_string()).unwrap();
    }

    /// The exit code, standard output and standard error of a check of the token.
    fn check(&self, client: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        let command = ["credential", "check", "--federated-token", "token", "--client-id", client];
        let output =
            self.workspace.piped_command(&[&command[..], arguments].concat()).output().unwrap();
        let [text, error] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        (output.status.code(), text, error)
    }

    /// The first broken hop of a check of the token, and the cause.
    fn first_broken(&self, client: &str, arguments: &[&str]) -> (String, String) {
        let (code, text, error) = self.check(client, &[arguments, &["-o", "json"]].concat());
        assert_eq!(code, Some(1), "{text}{error}");
        let document: Value = serde_json::from_str(&text).unwrap();
        let hop = document["firstBrokenHop"].as_str().unwrap().to_owned();
        let hops = document["hops"].as_array().unwrap();
        let broken = hops.iter().find(|it| it["hop"] == hop.as_str()).unwrap();
        (hop, broken["detail"].as_str().unwrap().to_owned())
    }
}

#[test]
fn matching_token_is_exchanged_and_its_role_is_checked() {
    let application = FederatedApplication::start();
    let token = application.project_token(&application.subject, AUDIENCE);
    let clients = application.workspace.control(Method::GET, "test-clients", None);
    let secret = |name: &str| {
        let host = clients["vaultHost"].as_str().unwrap();
        format!("https://{host}/secrets/{}?api-version=7.4", clients[name].as_str().unwrap())
    };
    let (code, text, error) =
        application.check(&application.client, &["--call", &secret("secretName")]);
    assert_eq!(code, Some(0), "{text}{error}");
    assert!(text.contains("  federated-credential  Entra ID accepts the token\n"), "{text}");
    assert!(text.ends_with("good: no hop is broken\n"), "{text}");
    for part in token.split('.') {
        assert!(!text.contains(part), "{text}");
    }
    let (hop, cause) =
        application.first_broken(&application.client, &["--call", &secret("withheldSecretName")]);
    assert_eq!(hop, "granted");
    assert!(cause.contains("403"), "{cause}");
}

#[test]
fn refused_token_is_compared_with_the_federated_credentials() {
    let application = FederatedApplication::start();
    let FederatedApplication { client, issuer, subject, .. } = &application;
    let list = ["--federated-credentials", "list.json"];
    let (namespace, name) =
        subject.strip_prefix("system:serviceaccount:").unwrap().split_once(':').unwrap();
    let other = format!("system:serviceaccount:{namespace}-2:{name}");

    application.project_token(&other, AUDIENCE);
    let (hop, cause) = application.first_broken(client, &[]);
    assert_eq!(hop, "federated-credential");
    assert_eq!(
        cause,
        format!("no federated credential has the token's subject `{other}` (AADSTS700213)")
    );
    application.list_credential(issuer, subject);
    let (hop, cause) = application.first_broken(client, &list);
    assert_eq!(hop, "federated-credential");
    assert_eq!(
        cause,
        format!(
            "subject differs in the namespace: the token has `{other}`, the federated credential `x` has `{subject}`"
        )
    );
    let (_, text, _) = application.check(client, &list);
    assert!(text.contains("error: entra-token: "), "{text}");
    assert!(text.contains("AADSTS700213"), "{text}");
    assert!(text.ends_with("not good: the first broken hop is `federated-credential`\n"), "{text}");

    application.project_token(subject, "api://other");
    let (hop, cause) = application.first_broken(client, &[]);
    assert_eq!(hop, "federated-credential");
    assert!(cause.ends_with("the token's audience `api://other` (AADSTS700212)"), "{cause}");
    let (_, cause) = application.first_broken(client, &list);
    assert!(cause.starts_with("audience differs: the token has `api://other`, "), "{cause}");
}

#[test]
fn issuer_with_a_slash_at_its_end_is_another_issuer() {
    let application = FederatedApplication::start();
    let (issuer, subject) = (format!("{}/", application.issuer), &application.subject);
    let client = application.workspace.variable("AZURE_CLIENT_ID");
    let credential = json!({ "clientId": client, "issuer": issuer, "subject": subject });
    application.workspace.control(Method::POST, "federated-credentials", Some(credential));
    application.project_token(subject, AUDIENCE);
    let (hop, cause) = application.first_broken(&client, &[]);
    assert_eq!(hop, "federated-credential");
    assert!(cause.ends_with("(AADSTS700211)"), "{cause}");
    application.list_credential(&issuer, subject);
    let (_, cause) = application.first_broken(&client, &["--federated-credentials", "list.json"]);
    assert!(cause.starts_with("issuer differs only in the slash at its end: "), "{cause}");
}

#[test]
fn expired_token_is_the_broken_hop() {
    let application = FederatedApplication::start();
    application.project_token(&application.subject, AUDIENCE);
    application.workspace.advance_clock(3_600);
    let (hop, cause) = application.first_broken(&application.client, &[]);
    assert_eq!(hop, "projected-token");
    assert!(cause.ends_with("(AADSTS700024)"), "{cause}");
}

#[test]
fn token_is_checked_without_requests_and_without_ids() {
    let application = FederatedApplication::start();
    let before = application.workspace.request_count();
    application.project_token(&application.subject, AUDIENCE);
    let (code, text, error) = application.check(&application.client, &["--offline"]);
    assert_eq!(code, Some(0), "{text}{error}");
    assert!(text.contains("  entra-token           not tried: --offline\n"), "{text}");

    let without_ids = ["credential", "check", "--federated-token", "token"];
    let mut command = application.workspace.piped_command(&without_ids);
    let output =
        command.env_remove("AZURE_CLIENT_ID").env_remove("AZURE_TENANT_ID").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("not tried: it needs --client-id and --tenant-id\n"), "{text}");

    application.project_token(&application.subject, "https://kubernetes.default.svc");
    let (hop, _) = application.first_broken(&application.client, &["--offline"]);
    assert_eq!(hop, "projected-token");
    application.list_credential(&application.issuer, "system:serviceaccount:b:app");
    let (hop, _) = application
        .first_broken(&application.client, &["--offline", "--federated-credentials", "list.json"]);
    assert_eq!(hop, "federated-credential");

    let token_requests = application.workspace.control(Method::GET, "request-log", None);
    let token_requests = token_requests["value"].as_array().unwrap().iter();
    let mut since = token_requests.filter(|it| it["sequence"].as_u64().unwrap() > before);
    assert!(since.all(|it| it["service"] != "entra"), "no request reaches Entra ID");
}

#[test]
fn unusable_inputs_are_reported() {
    let application = FederatedApplication::start();
    let files = application.workspace.files();
    std::fs::write(files.join("token"), r#"{"client_secret": "planted"}"#).unwrap();
    let (hop, cause) = application.first_broken(&application.client, &[]);
    assert_eq!(hop, "projected-token");
    assert!(cause.contains("it is not one JWT") && !cause.contains("planted"), "{cause}");

    application.project_token(&application.subject, AUDIENCE);
    std::fs::write(files.join("list.json"), r#"{"value": []}"#).unwrap();
    let list = ["--federated-credentials", "list.json"];
    let (code, _, error) = application.check(&application.client, &list);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("list.json is not a list of federated credentials"), "{error}");
    let (code, _, error) = application.check("not a client", &[]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("AZURE_CLIENT_ID is malformed"), "{error}");
    std::fs::remove_file(files.join("token")).unwrap();
    let (code, _, error) = application.check(&application.client, &["--offline"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("token cannot be read"), "{error}");
}
