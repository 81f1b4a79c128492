//! The service principals of identities that are known by client id only.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lanyard_azure::{
    ArmBody as _, ArmClient, AzureCallError, GraphClient, ManagedIdentity, ManagedIdentityBody,
};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{ArmResourceId, EntraClientId, SubscriptionId};
use uuid::Uuid;

/// The service principals of client ids could not be looked up, or one of them does not exist.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrincipalLookupError {
    /// The managed identities of the subscription cannot be listed.
    #[error("listing the managed identities of the subscription failed")]
    List(#[source] Box<AzureCallError>),
    /// Microsoft Graph did not answer for a client id.
    #[error(
        "looking up the service principal of the client id `{client_id}` in Microsoft Graph failed"
    )]
    Graph {
        /// The client id.
        client_id: EntraClientId,
        /// The error of the request.
        #[source]
        source: Box<AzureCallError>,
    },
    /// The tenant has no service principal for a client id.
    #[error("the tenant has no service principal with the client id `{0}`")]
    Missing(EntraClientId),
}

impl ErrorHint for PrincipalLookupError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::List(source) => return source.hint(),
            Self::Graph { source, .. } => {
                return source.permission_hint(
                    "give the signed-in identity the Graph permission `Application.Read.All`, or create the identities with `lanyard create iam azure`",
                );
            }
            Self::Missing(_) => {
                "correct the identities file; a deleted identity gets a new client id when it is created"
            }
        }))
    }
}

/// Finds the object ids of the service principals with these client ids.
///
/// Managed identities of the subscription are found without a Graph permission, and immediately after their
/// creation. Graph is asked only for the rest.
///
/// # Errors
///
/// [`PrincipalLookupError`] for the first client id that has no service principal.
pub(crate) async fn find_principals(
    arm: &ArmClient,
    graph: &GraphClient,
    subscription: &SubscriptionId,
    client_ids: &[EntraClientId],
) -> Result<BTreeMap<EntraClientId, Uuid>, PrincipalLookupError> {
    let scope = ArmResourceId::subscription_scope(subscription);
    let path = format!("{scope}/providers/{}", ManagedIdentityBody::RESOURCE_TYPE);
    let listed = arm.list(&path, ManagedIdentityBody::API_VERSION, &[]).await;
    let listed = listed.map_err(|source| PrincipalLookupError::List(Box::new(source)))?;
    let known: BTreeMap<EntraClientId, Uuid> = listed
        .into_iter()
        // An identity that is being created has no ids yet.
        .filter_map(|body| serde_json::from_value::<ManagedIdentity>(body).ok())
        .map(|identity| (identity.properties.client_id, identity.properties.principal_id))
        .collect();
    let mut found = BTreeMap::new();
    for client_id in client_ids {
        let principal = match known.get(client_id) {
            Some(principal) => Some(*principal),
            None => graph.service_principal_object_id(*client_id).await.map_err(|source| {
                let client_id = *client_id;
                PrincipalLookupError::Graph { client_id, source: Box::new(source) }
            })?,
        };
        let Some(principal) = principal else {
            return Err(PrincipalLookupError::Missing(*client_id));
        };
        found.insert(*client_id, principal);
    }
    Ok(found)
}
