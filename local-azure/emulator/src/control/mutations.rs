//! Changes by the control API: rotating credentials, applying faults, issuing tokens.

use http::StatusCode;
use lanyard_clock::ErrorHint as _;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::identity_registry::TestClients;
use lanyard_emulator_state::managed_clusters::issuer_in_profile;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::token_policy::TokenPolicy;
use lanyard_vocabulary::{Component, EntraClientId};
use serde::Deserialize;
use serde_json::json;

use super::federation::DEFAULT_AUDIENCE;
use super::managed_clusters::find_cluster;
use super::{control_error, parse_body};
use crate::fault_plan::FaultPlan;
use crate::seed::SeedError;
use crate::seed::credential::renew_credential;
use crate::subject_token::{
    DEFAULT_LIFETIME_SECONDS, SubjectTokenError, SubjectTokenSpec, mint_subject_token,
};

/// The body of `POST rotate`: a component of the HostedCluster API by its name, or a client id.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RotateCredentialRequest {
    component: Option<String>,
    client_id: Option<EntraClientId>,
    /// The number of extra bytes in the credential document.
    #[serde(default)]
    padding: usize,
}

/// The body of `POST federated-token`; missing fields default to the seeded federated credential.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SubjectTokenRequest {
    /// A managed cluster without a registered API server, whose issuer signs; by default the seeded issuer.
    cluster_id: Option<String>,
    subject: Option<String>,
    /// Namespace and name of a ServiceAccount, instead of `subject`.
    namespace: Option<String>,
    service_account: Option<String>,
    audience: Option<String>,
    lifetime_seconds: Option<u32>,
}

/// `POST rotate`: issues a new certificate for an identity, as a new version of its vault secret.
pub(super) fn rotate_component_credential(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let body: RotateCredentialRequest = parse_body(call)?;
    let component = component_to_rotate(call, &body)?;
    let now = call.now;
    let (azure, ids) = call.azure_and_ids();
    let issued = renew_credential(azure, component, ids, now, body.padding);
    let issued = issued.map_err(|error| seed_error_reply(&error))?;
    Ok(ServiceReply::json(StatusCode::CREATED, &issued))
}

fn component_to_rotate(
    call: &OperationContext<'_>,
    body: &RotateCredentialRequest,
) -> Result<Component, ServiceReply> {
    let invalid =
        |message: &str| control_error(StatusCode::BAD_REQUEST, "IdentityInvalid", message);
    match (&body.component, body.client_id) {
        (Some(name), None) => name.parse::<Component>().map_err(|_unknown| {
            let known = Component::ALL.map(Component::name).join(", ");
            invalid(&format!("`component` is none of {known}."))
        }),
        (None, Some(client)) => {
            let mut rows = call.azure().registry.identities_of_client(client);
            let first = rows.next().ok_or_else(|| {
                control_error(
                    StatusCode::NOT_FOUND,
                    "IdentityNotFound",
                    "No component has this client id; `GET /lanyard/v1/state` lists them.",
                )
            })?;
            if rows.all(|row| row.shares_secret(first)) {
                Ok(first.component)
            } else {
                Err(invalid(
                    "Several secrets hold credentials of this client id: name one of its components.",
                ))
            }
        }
        _ => Err(invalid("Name the identity by `component` or by `clientId`, one of them.")),
    }
}

/// `POST drills` with a fault plan: breaks one hop of one component in the running emulator.
pub(super) fn inject_identity_fault(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let fault: FaultPlan = parse_body(call)?;
    let now = call.now;
    let (azure, ids) = call.azure_and_ids();
    fault.apply(azure, ids, now).map_err(|error| seed_error_reply(&error))?;
    Ok(ServiceReply::json(StatusCode::CREATED, &fault))
}

fn seed_error_reply(error: &SeedError) -> ServiceReply {
    let message =
        error.hint().map_or_else(|| format!("{error}."), |hint| format!("{error}: {hint}."));
    control_error(StatusCode::CONFLICT, "ChangeFailed", &message)
}

/// `PUT tokens`: sets the lifetimes of tokens that are issued from now on.
pub(super) fn set_token_policy(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let policy: TokenPolicy = parse_body(call)?;
    *call.azure_mut().tokens = policy;
    Ok(ServiceReply::json(StatusCode::OK, &policy))
}

/// `POST federated-token`: issues a subject token as a cluster would project it into a pod.
pub(super) fn mint_subject_token_for_request(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let body: SubjectTokenRequest = if call.request.body.is_empty() {
        SubjectTokenRequest::default()
    } else {
        parse_body(call)?
    };
    let invalid = |message| control_error(StatusCode::BAD_REQUEST, "BodyInvalid", message);
    let subject = match (body.subject, body.namespace, body.service_account) {
        (subject, None, None) => subject,
        (None, Some(namespace), Some(name)) => {
            Some(format!("system:serviceaccount:{namespace}:{name}"))
        }
        _ => return Err(invalid("Give `subject`, or `namespace` and `serviceAccount`.")),
    };
    let test_clients = call.azure().registry.test_clients.as_ref();
    let seeded = |field: fn(&TestClients) -> &String| test_clients.map(field).cloned();
    let issuer = match &body.cluster_id {
        Some(id) => {
            if subject.is_none() {
                return Err(invalid("The token of a cluster needs a subject."));
            }
            let issuer = issuer_in_profile(find_cluster(call, id)?).map(ToOwned::to_owned);
            Some(issuer.ok_or_else(no_issuer_reply)?)
        }
        None => seeded(|clients| &clients.issuer),
    };
    let issuer = issuer.ok_or_else(no_test_clients_reply)?;
    let subject = subject.or_else(|| seeded(|clients| &clients.subject));
    let spec = SubjectTokenSpec {
        issuer: &issuer,
        subject: subject.as_deref().unwrap_or_default(),
        audience: body.audience.as_deref().unwrap_or(DEFAULT_AUDIENCE),
        lifetime_seconds: body.lifetime_seconds.unwrap_or(DEFAULT_LIFETIME_SECONDS),
    };
    let minted = mint_subject_token(call.azure, spec, call.ids, call.now);
    let token = minted.map_err(|error| match error {
        SubjectTokenError::NoIssuer => no_issuer_reply(),
        SubjectTokenError::Signing(_) => {
            control_error(StatusCode::CONFLICT, "TokenNotIssued", &format!("{error}."))
        }
    })?;
    Ok(ServiceReply::json(StatusCode::CREATED, &json!({ "token": token })))
}

/// `GET identity-header`: the value of `IDENTITY_HEADER` for App Service clients.
pub(super) fn get_identity_header(call: &OperationContext<'_>) -> ServiceReply {
    let header = &call.azure().imds.identity_header;
    ServiceReply::json(StatusCode::OK, &json!({ "identityHeader": header }))
}

/// `GET test-clients`: the credentials of the test clients. Besides [`get_identity_header`] the only reply that
/// returns credentials.
pub(super) fn get_test_clients(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let test_clients =
        call.azure().registry.test_clients.as_ref().ok_or_else(no_test_clients_reply)?;
    let directory = &call.azure().directory;
    let object_id = |client| {
        directory.service_principal_by_client_id(client).map(|principal| principal.object_id)
    };
    Ok(ServiceReply::json(
        StatusCode::OK,
        &json!({
            "tenant": test_clients.tenant,
            "subscription": test_clients.subscription,
            "user": {
                "userPrincipalName": test_clients.user_principal_name,
                "password": test_clients.user_password,
                "objectId": test_clients.user_object_id,
            },
            "vaultHost": test_clients.vault_host,
            "secretName": test_clients.secret_name,
            "withheldSecretName": test_clients.withheld_secret_name,
            "secret": {
                "clientId": test_clients.secret_client,
                "objectId": object_id(test_clients.secret_client),
                "clientSecret": test_clients.secret,
            },
            "certificate": {
                "clientId": test_clients.certificate_client,
                "objectId": object_id(test_clients.certificate_client),
                "certificatePem": test_clients.certificate,
            },
            "federated": {
                "clientId": test_clients.federated_client,
                "objectId": object_id(test_clients.federated_client),
                "issuer": test_clients.issuer,
                "subject": test_clients.subject,
                "audience": test_clients.audience,
            },
            "identityHeader": call.azure().imds.identity_header,
        }),
    ))
}

fn no_issuer_reply() -> ServiceReply {
    control_error(
        StatusCode::CONFLICT,
        "IssuerKeyMissing",
        "The local Azure has no key pair of this issuer: the cluster's issuer is not enabled, or its API \
         server signs.",
    )
}

fn no_test_clients_reply() -> ServiceReply {
    control_error(
        StatusCode::NOT_FOUND,
        "NoTestClients",
        "The local Azure was seeded without test clients: set `testClients` in its plan.",
    )
}
