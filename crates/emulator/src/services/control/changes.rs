//! What the control API changes in the world: credentials rotate, drills break, tokens are minted.

use http::StatusCode;
use lanyard_vocabulary::{ClientId, Component};
use serde::Deserialize;
use serde_json::json;

use super::{body, refused};
use crate::call::Call;
use crate::drill::{Drill, apply_drill};
use crate::request::Reply;
use crate::seed::{SeedError, issue_certificate, mint_federated_token};
use crate::token::TokenPolicy;

/// What `POST rotate` takes: a component by its name in the HostedCluster API, or a client id.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rotation {
    component: Option<String>,
    client_id: Option<ClientId>,
    /// Bytes that the credential document has beyond what it needs.
    #[serde(default)]
    padding: usize,
}

/// What `POST federated-token` takes; without a field, what the seeded credential trusts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SubjectToken {
    subject: Option<String>,
    audience: Option<String>,
}

/// `POST rotate`: a new certificate for an identity, as a new version of its vault secret.
pub(super) fn rotate(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let asked: Rotation = body(call)?;
    let component = rotated(call, &asked)?;
    let now = call.now;
    let (world, ids) = call.world_and_ids();
    let issued = issue_certificate(world, component, ids, now, asked.padding);
    let issued = issued.map_err(|error| seed_refusal(&error))?;
    Ok(Reply::json(StatusCode::CREATED, &issued))
}

fn rotated(call: &Call<'_>, asked: &Rotation) -> Result<Component, Reply> {
    let invalid = |message: &str| refused(StatusCode::BAD_REQUEST, "IdentityInvalid", message);
    match (&asked.component, asked.client_id) {
        (Some(name), None) => {
            name.parse::<Component>().map_err(|error| invalid(&error.to_string()))
        }
        (None, Some(client)) => {
            let mut rows = call.world().roster.of_client(client);
            let first = rows.next().ok_or_else(|| {
                refused(
                    StatusCode::NOT_FOUND,
                    "IdentityNotFound",
                    "No component has this client id; `GET /lanyard/v1/world` lists them.",
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

/// `POST drills`: breaks one hop of one component, in the world as it runs.
pub(super) fn drill(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let drill: Drill = body(call)?;
    let now = call.now;
    let (world, ids) = call.world_and_ids();
    apply_drill(world, drill, ids, now).map_err(|error| seed_refusal(&error))?;
    Ok(Reply::json(StatusCode::CREATED, &drill))
}

fn seed_refusal(error: &SeedError) -> Reply {
    let message =
        error.hint().map_or_else(|| format!("{error}."), |hint| format!("{error}: {hint}."));
    refused(StatusCode::CONFLICT, "WorldRefuses", &message)
}

/// `PUT tokens`: how long tokens live that are issued from now on.
pub(super) fn set_token_policy(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let policy: TokenPolicy = body(call)?;
    call.world_mut().tokens = policy;
    Ok(Reply::json(StatusCode::OK, &policy))
}

/// `POST federated-token`: a subject token as a cluster would project it into a pod.
pub(super) fn mint(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let asked: SubjectToken = if call.request.body.is_empty() {
        SubjectToken { subject: None, audience: None }
    } else {
        body(call)?
    };
    let guests = call.world().roster.guests.as_ref().ok_or_else(no_guests)?;
    let subject = asked.subject.unwrap_or_else(|| guests.subject.clone());
    let audience = asked.audience.unwrap_or_else(|| guests.audience.clone());
    let minted = mint_federated_token(call.world, &subject, &audience, call.ids, call.now);
    let token = minted
        .map_err(|error| refused(StatusCode::CONFLICT, "WorldRefuses", &format!("{error}.")))?;
    Ok(Reply::json(StatusCode::CREATED, &json!({ "token": token })))
}

/// `GET identity-header`: what clients of the App Service protocol set `IDENTITY_HEADER` to.
pub(super) fn identity_header(call: &Call<'_>) -> Reply {
    let header = &call.world().imds.identity_header;
    Reply::json(StatusCode::OK, &json!({ "identityHeader": header }))
}

/// `GET guests`: how other people's clients sign in. Beside [`identity_header`] the one reply that
/// hands out credentials.
pub(super) fn guests(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let guests = call.world().roster.guests.as_ref().ok_or_else(no_guests)?;
    Ok(Reply::json(
        StatusCode::OK,
        &json!({
            "tenant": guests.tenant,
            "vaultHost": guests.vault_host,
            "secretName": guests.secret_name,
            "withheldSecretName": guests.withheld_secret_name,
            "secret": { "clientId": guests.secret_client, "clientSecret": guests.secret },
            "certificate": {
                "clientId": guests.certificate_client,
                "certificatePem": guests.certificate,
            },
            "federated": {
                "clientId": guests.federated_client,
                "issuer": guests.issuer,
                "subject": guests.subject,
                "audience": guests.audience,
            },
            "identityHeader": call.world().imds.identity_header,
        }),
    ))
}

fn no_guests() -> Reply {
    refused(
        StatusCode::NOT_FOUND,
        "NoGuests",
        "The world was seeded without guests: set `guests` in its plan.",
    )
}
