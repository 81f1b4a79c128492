//! Azure SDK for Python, and grpcio with the unix sockets of lanyard.

mod unix_socket;

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::client_cases::{self, ClientCall, ClientCase};
use super::failed_with_causes;
use super::lifecycles::LifecycleClient;
use crate::azure_target::{AzureTarget, LocalAzureTarget};
use crate::client_program::{ClientInputs, ClientProgram};
use crate::custom_cloud::write_custom_hosts_launcher;
use crate::sign_in_method::SignInMethod;

/// Invalid credentials of applications and users, with the codes of Entra ID.
const REFUSED: [ClientCase; 8] = [
    ClientCase::refused("wrong-signature", SignInMethod::Certificate, "AADSTS700027"),
    ClientCase::refused("wrong-audience", SignInMethod::Certificate, "AADSTS700023"),
    ClientCase::refused("expired-assertion", SignInMethod::Certificate, "AADSTS700024"),
    ClientCase::refused("unknown-thumbprint", SignInMethod::Certificate, "AADSTS700027"),
    ClientCase::refused("unknown-application", SignInMethod::Certificate, "AADSTS700016"),
    ClientCase::refused("wrong-secret", SignInMethod::Secret, "AADSTS7000215"),
    ClientCase::refused("wrong-password", SignInMethod::User, "AADSTS50126"),
    ClientCase::refused("unknown-user", SignInMethod::User, "AADSTS50034"),
];

fn cases() -> Vec<ClientCase> {
    use SignInMethod::{Certificate, Federated, ManagedIdentity, Secret, User};
    let methods = [Certificate, Secret, Federated, ManagedIdentity];
    let mut cases: Vec<_> = ClientCase::granted_to(ClientCall::Token, &methods).collect();
    cases.extend(ClientCase::granted_to(ClientCall::Vault, &methods));
    cases.extend(ClientCase::granted_to(ClientCall::Arm, &[Certificate, Secret, Federated]));
    cases.extend([
        ClientCase::granted(ClientCall::Token, "password", User),
        ClientCase::granted(ClientCall::Token, "device-code", User),
        ClientCase::granted(ClientCall::Token, "browser", User),
        ClientCase::granted(ClientCall::Arm, "password", User),
        ClientCase::denied(ClientCall::Vault, Certificate, ("Forbidden", Some("ForbiddenByRbac"))),
        ClientCase::denied(ClientCall::Arm, Certificate, ("AuthorizationFailed", None)),
    ]);
    cases.extend(REFUSED);
    cases
}

pub(crate) fn trials(
    target: &Arc<AzureTarget>,
    program: &ClientProgram,
    runtime: &Arc<Runtime>,
) -> Vec<Trial> {
    let mut trials = client_cases::trials("python", &cases(), target, program);
    let is_local = matches!(&**target, AzureTarget::Local(_));
    let (custom_target, custom_program) = (Arc::clone(target), program.clone());
    let (service_target, service_program, service_runtime) =
        (Arc::clone(target), program.clone(), Arc::clone(runtime));
    let (grpc_program, grpc_runtime) = (program.clone(), Arc::clone(runtime));
    let run = move || unix_socket::grpc_client_calls_a_unix_socket(&grpc_program, &grpc_runtime);
    trials.push(Trial::test("python::grpc_client_calls_a_unix_socket", run));
    let (target, program, runtime) = (Arc::clone(target), program.clone(), Arc::clone(runtime));
    let run = move || second_node_has_its_own_identity(target.local()?, &program, &runtime);
    let name = "python::managed_identity_of_a_second_node";
    trials.push(Trial::test(name, run).with_ignored_flag(!is_local));
    let run = move || {
        app_service_has_a_managed_identity(
            service_target.local()?,
            &service_program,
            &service_runtime,
        )
    };
    let name = "python::managed_identity_of_app_service";
    trials.push(Trial::test(name, run).with_ignored_flag(!is_local));
    let run = move || custom_cloud_needs_no_proxy(custom_target.local()?, &custom_program);
    trials
        .push(Trial::test("python::custom_cloud_needs_no_proxy", run).with_ignored_flag(!is_local));
    trials
}

/// The client creates a group and a vault in the custom cloud, and writes and reads a secret. It verifies that
/// the challenge of the vault names its domain and port.
fn custom_cloud_needs_no_proxy(
    local: &LocalAzureTarget,
    program: &ClientProgram,
) -> Result<(), Failed> {
    let urls = local.custom_cloud();
    let python = write_custom_hosts_launcher(local.directory(), program.path())
        .map_err(failed_with_causes)?;
    let program =
        program.with_interpreter(python).with_environment(local.custom_cloud_environment());
    let inputs = ClientInputs {
        resource_manager: urls.resource_manager.clone(),
        authority: urls.authority.clone(),
        vault: format!("https://kv-python-custom.vault.{}", urls.domain),
        object_id: local.owner_object_id().to_owned(),
        ..local.inputs(SignInMethod::Secret)
    };
    let answer = program.run_case("custom-cloud:secret", &inputs).map_err(failed_with_causes)?;
    let expected = json!({ "vault": format!("{}/", inputs.vault), "value": "first" });
    if answer == expected { Ok(()) } else { Err(format!("{answer}, expected {expected}").into()) }
}

/// A node with only the federated test identity: the client gets its token, and none of the identity of the
/// first node. The client selects the node by the user name at the proxy, then by the path.
fn second_node_has_its_own_identity(
    local: &LocalAzureTarget,
    program: &ClientProgram,
    runtime: &Runtime,
) -> Result<(), Failed> {
    let identity = local.inputs(SignInMethod::Federated).client;
    let node: Value = runtime
        .block_on(local.control_api().put("nodes/worker-1", &json!({ "identities": [identity] })))
        .map_err(failed_with_causes)?;
    let text = |field: &str| node[field].as_str().unwrap_or_default().to_owned();
    let mut by_proxy = local.client_environment();
    for name in ["HTTP_PROXY", "http_proxy"] {
        by_proxy.insert(name, text("proxyUrl").into());
    }
    let mut by_path = local.client_environment();
    by_path.insert("AZURE_POD_IDENTITY_AUTHORITY_HOST", text("metadataUrl").into());
    by_path.insert("NO_PROXY", "127.0.0.1".into());
    for environment in [by_proxy, by_path] {
        let program = program.with_environment(environment);
        let mut inputs = local.inputs(SignInMethod::ManagedIdentity);
        let refused =
            program.run_case("token:managed-identity", &inputs).map_err(failed_with_causes)?;
        if !refused.to_string().contains("Identity not found") {
            return Err(format!("the identity of another node: {refused}").into());
        }
        inputs.client.clone_from(&identity);
        let answer =
            program.run_case("token:managed-identity", &inputs).map_err(failed_with_causes)?;
        if answer.pointer("/token/appid") != Some(&json!(identity)) {
            return Err(format!("the identity of the node: {answer}").into());
        }
    }
    Ok(())
}

/// The client gets a token from the endpoint of App Service, and none with another header.
fn app_service_has_a_managed_identity(
    local: &LocalAzureTarget,
    program: &ClientProgram,
    runtime: &Runtime,
) -> Result<(), Failed> {
    let reply: Value =
        runtime.block_on(local.control_api().get("identity-header")).map_err(failed_with_causes)?;
    let header = reply["identityHeader"].as_str().unwrap_or_default();
    let inputs = local.inputs(SignInMethod::ManagedIdentity);
    let run = |header: &str| {
        let mut environment = local.client_environment();
        environment.insert("IDENTITY_ENDPOINT", format!("{}/msi/token", local.proxy_url()).into());
        environment.insert("IDENTITY_HEADER", header.into());
        environment.insert("NO_PROXY", "127.0.0.1".into());
        let program = program.with_environment(environment);
        program.run_case("token:managed-identity", &inputs).map_err(failed_with_causes)
    };
    let answer = run(header)?;
    if answer.pointer("/token/appid") != Some(&json!(inputs.client)) {
        return Err(format!("the identity of App Service: {answer}").into());
    }
    let refused = run("another-header")?;
    if !refused.to_string().contains("X-IDENTITY-HEADER is missing or wrong") {
        return Err(format!("another header: {refused}").into());
    }
    Ok(())
}

/// The packages azure-keyvault-*, azure-mgmt-* and azure-storage-blob, and Microsoft Graph.
pub(crate) const fn lifecycle_client(program: ClientProgram) -> LifecycleClient {
    const LIFECYCLES: &[&str] = &[
        "network",
        "clusters",
        "secrets",
        "certificates",
        "keys",
        "vaults",
        "storage",
        "blobs",
        "identities",
        "roles",
        "private-dns",
        "dns",
        "resources",
        "graph",
    ];
    LifecycleClient { name: "python", program, lifecycles: LIFECYCLES }
}
