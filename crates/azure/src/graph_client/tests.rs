//! Tests of the requests, with scripted replies.

use lanyard_vocabulary::cloud::PUBLIC;

use super::*;
use crate::scripted_azure::{ScriptedAzure, ScriptedCredential, ScriptedReply};

const ID: Uuid = Uuid::from_u128(1);
const GRAPH: &str = "https://graph.microsoft.com/v1.0";

fn app_id() -> EntraClientId {
    EntraClientId::from(Uuid::from_u128(2))
}

fn graph(replies: impl IntoIterator<Item = ScriptedReply>) -> (GraphClient, Arc<ScriptedAzure>) {
    let azure = ScriptedAzure::new(replies);
    let (transport, _) = azure.transport();
    (GraphClient::new(&PUBLIC, Arc::new(ScriptedCredential), &transport), azure)
}

fn object() -> Value {
    json!({ "id": ID, "appId": app_id(), "displayName": "cpo" })
}

fn missing() -> ScriptedReply {
    let body = json!({ "error": { "code": "Request_ResourceNotFound", "message": "no" } });
    (404, &[][..], body)
}

#[tokio::test]
async fn upsert_reads_an_object_that_existed() {
    let body = GraphApplicationBody::new("cpo");
    let (client, azure) = graph([(204, &[][..], Value::Null), (200, &[][..], object())]);
    let application = client.upsert_application("it's/cpo", &body).await.unwrap();
    assert_eq!((application.id, application.app_id), (ID, app_id()));
    let key = format!("{GRAPH}/applications(uniqueName='it''s%2Fcpo')");
    assert_eq!(
        azure.requests(),
        [
            format!(
                "PATCH {key} prefer=create-if-missing {{\"displayName\":\"cpo\",\"signInAudience\":\"AzureADMyOrg\"}}"
            ),
            format!(
                "GET {key}?%24select=id%2CappId%2CdisplayName%2CuniqueName%2Ctags%2CkeyCredentials"
            ),
        ]
    );

    let (client, azure) = graph([(201, &[][..], object())]);
    assert_eq!(client.upsert_service_principal(app_id()).await.unwrap().id, ID);
    assert_eq!(
        azure.requests(),
        [format!(
            "PATCH {GRAPH}/servicePrincipals(appId='00000000-0000-0000-0000-000000000002') prefer=create-if-missing {{}}"
        )]
    );
}

#[tokio::test]
async fn missing_object_is_none_and_its_deletion_succeeds() {
    let (client, azure) = graph([missing(), missing(), missing()]);
    assert_eq!(client.application_by_app_id(app_id()).await.unwrap(), None);
    assert_eq!(client.service_principal_object_id(app_id()).await.unwrap(), None);
    client.delete_application(ID).await.unwrap();
    assert_eq!(azure.requests()[2..], [format!("DELETE {GRAPH}/applications/{ID}")]);
    let (client, _) = graph([(404, &[][..], Value::Null)]);
    assert!(client.application(ID).await.is_err());
}

#[tokio::test]
async fn purge_of_an_object_that_graph_does_not_know_is_an_error() {
    let page = json!({ "value": [object()] });
    let (client, azure) = graph([(200, &[][..], page), missing(), (204, &[][..], Value::Null)]);
    let deleted = client.deleted_applications().await.unwrap();
    assert_eq!(deleted[0].id, ID);
    assert_eq!(client.purge_deleted_object(ID).await.unwrap_err().status(), Some(404));
    client.purge_deleted_object(ID).await.unwrap();
    let purge = format!("DELETE {GRAPH}/directory/deletedItems/{ID}");
    let list = format!("GET {GRAPH}/directory/deletedItems/microsoft.graph.application");
    assert_eq!(azure.requests(), [list, purge.clone(), purge]);
}

#[tokio::test]
async fn display_name_filter_is_escaped_and_its_pages_are_followed() {
    let next = format!("{GRAPH}/applications?$skiptoken=2");
    let first = json!({ "value": [object()], "@odata.nextLink": next });
    let second = json!({ "value": [object()] });
    let (client, azure) = graph([(200, &[][..], first), (200, &[][..], second)]);
    let found = client.applications_by_display_name("O'Neil & Co").await.unwrap();
    assert_eq!(found.len(), 2);
    let filter = "%24filter=displayName%20eq%20%27O%27%27Neil%20%26%20Co%27";
    assert!(azure.requests()[0].contains(filter), "{:?}", azure.requests());
    assert_eq!(azure.requests()[1], format!("GET {next}"));
    let foreign = json!({ "value": [], "@odata.nextLink": "https://example.org/x" });
    let (client, _) = graph([(200, &[][..], foreign)]);
    let error = client.applications_by_display_name("x").await.unwrap_err();
    assert!(matches!(error, AzureCallError::ForeignUrl { .. }), "{error}");
}

#[tokio::test]
async fn look_up_sends_at_most_a_thousand_ids_at_once() {
    let page = || (200, &[][..], json!({ "value": [{ "id": ID }] }));
    let (client, azure) = graph([page(), page()]);
    let ids: Vec<_> = (0..1_001).map(Uuid::from_u128).collect();
    let found = client.directory_objects(&ids, &["servicePrincipal"]).await.unwrap();
    assert_eq!((found.len(), azure.requests().len()), (2, 2));
    assert_eq!(
        azure.requests()[1],
        format!(
            "POST {GRAPH}/directoryObjects/getByIds {{\"ids\":[\"{}\"],\"types\":[\"servicePrincipal\"]}}",
            Uuid::from_u128(1_000)
        )
    );
}

#[tokio::test]
async fn certificates_are_replaced_as_a_whole() {
    let (client, azure) = graph([(204, &[][..], Value::Null)]);
    client.replace_key_credentials(ID, &[]).await.unwrap();
    assert_eq!(
        azure.requests(),
        [format!("PATCH {GRAPH}/applications/{ID} {{\"keyCredentials\":[]}}")]
    );
}

#[tokio::test]
async fn reply_of_another_format_is_malformed() {
    let (client, _) = graph([(200, &[][..], json!({ "id": 7 })), (200, &[][..], json!({}))]);
    assert!(matches!(client.me().await, Err(AzureCallError::Malformed { status: 200, .. })));
    let listed = client.applications_by_display_name("x").await;
    assert!(matches!(listed, Err(AzureCallError::Malformed { .. })));
}
