use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_emulator::testing::{
    aadsts_code, client_key, self_signed_certificate, sign_token, untrusted_key,
};
use lanyard_emulator_state::certificates::{days_after, sha1_thumbprint};
use serde_json::json;

use super::*;

fn certificate(name: &str) -> Vec<u8> {
    self_signed_certificate(name, &client_key(), (-1, 90))
}

fn key_credential(der: &[u8]) -> Value {
    json!({
        "@odata.type": "#microsoft.graph.keyCredential",
        "type": "AsymmetricX509Cert",
        "usage": "Verify",
        "key": STANDARD.encode(der),
    })
}

#[test]
fn application_is_created_read_changed_and_deleted() {
    let graph = GraphFixture::new();
    let created = graph.post(
        "/applications",
        &json!({ "displayName": "web", "identifierUris": ["api://web"], "keyCredentials": [] }),
    );
    let (id, app_id) = (id_of(&created), created["appId"].as_str().unwrap().to_owned());
    assert_eq!(
        json!([
            created["@odata.context"],
            created["displayName"],
            created["identifierUris"],
            created["signInAudience"],
            created["publisherDomain"],
            created["passwordCredentials"],
            created["web"]["implicitGrantSettings"]["enableIdTokenIssuance"],
            created["createdDateTime"],
        ]),
        json!([
            "https://graph.microsoft.com/v1.0/$metadata#applications/$entity",
            "web",
            ["api://web"],
            "AzureADMyOrg",
            DOMAIN,
            [],
            false,
            text_of_time(start_time()),
        ])
    );
    graph.patch(
        &format!("/applications/{id}"),
        &json!({ "displayName": "web2", "web": { "redirectUris": ["https://a.test/cb"] } }),
    );
    graph.patch(
        &format!("/applications(appId='{app_id}')"),
        &json!({ "web": { "homePageUrl": "https://a.test" }, "tags": ["t"] }),
    );
    let read = graph.get(&format!("/applications/{id}"));
    assert_eq!(
        json!([
            read["displayName"],
            read["web"]["redirectUris"],
            read["web"]["homePageUrl"],
            read["tags"]
        ]),
        json!(["web2", ["https://a.test/cb"], "https://a.test", ["t"]])
    );
    assert_eq!(id_of(&graph.get(&format!("/applications('{id}')"))), id);
    graph.delete(&format!("/applications/{id}"));
    assert_eq!(graph.fail("GET", &format!("/applications/{id}"), &Value::Null), not_found(&id));
}

#[test]
fn lists_are_filtered_selected_ordered_and_paged() {
    let graph = GraphFixture::new();
    for name in ["alpha", "beta", "alphabet"] {
        graph.post("/applications", &json!({ "displayName": name }));
    }
    assert_eq!(
        graph.list("/applications?$orderby=displayName", "displayName"),
        ["alpha", "alphabet", "beta", "probe"]
    );
    assert_eq!(
        graph.list("/applications?$filter=startswith(displayName,'alpha')", "displayName").len(),
        2
    );
    assert_eq!(
        graph.list(&format!("/applications?$filter=appId eq '{APP}'"), "displayName"),
        ["probe"]
    );
    let page = graph.get("/applications?$orderby=displayName desc&$top=3&$select=displayName");
    assert_eq!(values_of(&page, "displayName"), ["probe", "beta", "alphabet"]);
    assert_eq!(
        page["@odata.context"],
        "https://graph.microsoft.com/v1.0/$metadata#applications(displayName)"
    );
    assert_eq!(page["value"][0], json!({ "displayName": "probe" }));
    let next = page["@odata.nextLink"].as_str().unwrap();
    let start = "https://graph.microsoft.com/v1.0/applications?$orderby=displayName+desc&$top=3&";
    assert!(next.starts_with(start), "{next}");
    let rest = graph.get(next.trim_start_matches("https://graph.microsoft.com/v1.0"));
    assert_eq!(values_of(&rest, "displayName"), ["alpha"]);
    assert_eq!(rest.get("@odata.nextLink"), None);
    let advanced = [("consistencylevel", "eventual")];
    let path = "/applications?$count=true&$filter=displayName ne 'probe'&$orderby=displayName";
    let counted =
        graph.send_with_headers(Caller::Administrator, "GET", path, &Value::Null, &advanced);
    assert_eq!(reply_json(&counted)["@odata.count"], 3);
    let (status, code, _) = graph.fail("GET", "/applications?$count=maybe", &Value::Null);
    assert_eq!((status, code.as_str()), (400, "BadRequest"));
    let path = "/applications/$count";
    let count =
        graph.send_with_headers(Caller::Administrator, "GET", path, &Value::Null, &advanced);
    assert_eq!(text(&count), "4");
    let path = "/applications?$search=\"displayName:alph\"";
    let found =
        graph.send_with_headers(Caller::Administrator, "GET", path, &Value::Null, &advanced);
    assert_eq!(values_of(&reply_json(&found), "displayName").len(), 2);
}

#[test]
fn invalid_queries_are_rejected() {
    let graph = GraphFixture::new();
    for (query, code) in [
        ("$filter=color eq 'x'", "BadRequest"),
        ("$filter=displayName ne 'x'", "Request_UnsupportedQuery"),
        ("$filter=appId eq ''", "Request_UnsupportedQuery"),
        ("$select=color", "BadRequest"),
        ("$orderby=tags", "Request_UnsupportedQuery"),
        ("$filter=displayName eq 'x'&$orderby=displayName", "Request_UnsupportedQuery"),
        ("$top=0", "BadRequest"),
        ("$top=1000", "Request_BadRequest"),
        ("$expand=color", "BadRequest"),
        ("$skiptoken=x", "BadRequest"),
        ("$apply=x", "BadRequest"),
        ("$search=\"displayName:x\"", "Request_UnsupportedQuery"),
    ] {
        let (status, found, message) =
            graph.fail("GET", &format!("/applications?{query}"), &Value::Null);
        assert_eq!((status, found.as_str()), (400, code), "{query}: {message}");
    }
}

#[test]
fn invalid_properties_of_applications_are_rejected() {
    let graph = GraphFixture::new();
    graph.post("/applications", &json!({ "displayName": "a", "identifierUris": ["api://taken"] }));
    let role = |id: &str, value: &str| json!({ "id": id, "value": value, "allowedMemberTypes": ["User"], "isEnabled": true, "displayName": "r", "description": "r" });
    let id = "2f0c1b5e-0000-4000-8000-000000000001";
    for (body, code, message) in [
        (
            json!({}),
            "Request_BadRequest",
            "A value is required for property 'displayName' of resource 'Application'.",
        ),
        (
            json!({ "displayName": "" }),
            "Request_BadRequest",
            "A value is required for property 'displayName' of resource 'Application'.",
        ),
        (
            json!({ "displayName": 1 }),
            "Request_BadRequest",
            "Invalid value specified for property 'displayName' of resource 'Application'.",
        ),
        (
            json!({ "displayName": "x", "color": 1 }),
            "Request_BadRequest",
            "Invalid property 'color'.",
        ),
        (
            json!({ "displayName": "x", "appId": id }),
            "Request_BadRequest",
            "Property 'appId' is read-only and cannot be set.",
        ),
        (
            json!({ "displayName": "x", "tags": "t" }),
            "Request_BadRequest",
            "Invalid value specified for property 'tags' of resource 'Application'.",
        ),
        (
            json!({ "displayName": "x", "signInAudience": "Me" }),
            "Request_BadRequest",
            "Invalid value specified for property 'signInAudience' of resource 'Application'.",
        ),
        (
            json!({ "displayName": "x", "identifierUris": ["API://taken"] }),
            "Request_MultipleObjectsWithSameKeyValue",
            "Another object with the same value for property identifierUris already exists.",
        ),
        (
            json!({ "displayName": "x", "identifierUris": ["https://not-verified.example.org"] }),
            "HostNameNotOnVerifiedDomain",
            "Values of identifierUris property must use a verified domain of the organization or its subdomain: 'https://not-verified.example.org'",
        ),
        (
            json!({ "displayName": "x", "appRoles": [role(id, "a"), role(id, "b")] }),
            "Request_BadRequest",
            "Request contains a property with duplicate values: '2f0c1b5e-0000-4000-8000-000000000001' in 'appRoles'.",
        ),
        (
            json!({ "displayName": "x", "appRoles": [role("x", "a")] }),
            "Request_BadRequest",
            "Invalid value specified for property 'id' of resource 'appRoles'.",
        ),
        (
            json!({ "displayName": "x", "owners@odata.bind": ["https://graph.microsoft.com/v1.0/users/2f0c1b5e-0000-4000-8000-000000000001"] }),
            "Request_ResourceNotFound",
            "Resource '2f0c1b5e-0000-4000-8000-000000000001' does not exist or one of its queried reference-property objects are not present.",
        ),
    ] {
        let (_, found, text) = graph.fail("POST", "/applications", &body);
        assert_eq!((found.as_str(), text.as_str()), (code, message), "{body}");
    }
    let verified =
        json!({ "displayName": "v", "identifierUris": [format!("https://app.{DOMAIN}/x")] });
    graph.post("/applications", &verified);
}

#[test]
fn enabled_roles_and_scopes_must_be_disabled_before_their_removal() {
    let graph = GraphFixture::new();
    let id = "2f0c1b5e-0000-4000-8000-000000000001";
    let role = |is_enabled: bool| json!({ "id": id, "value": "reader", "allowedMemberTypes": ["Application"], "isEnabled": is_enabled, "displayName": "r", "description": "r" });
    let scope = json!({ "api": { "oauth2PermissionScopes": [{ "id": id, "value": "read", "isEnabled": true }] } });
    let app = graph.post("/applications", &json!({ "displayName": "x", "appRoles": [role(true)] }));
    let path = format!("/applications/{}", id_of(&app));
    graph.patch(&path, &scope);
    for body in [json!({ "appRoles": [] }), json!({ "api": { "oauth2PermissionScopes": [] } })] {
        let (status, code, _) = graph.fail("PATCH", &path, &body);
        assert_eq!(
            (status, code.as_str()),
            (400, "CannotDeleteOrUpdateEnabledEntitlement"),
            "{body}"
        );
    }
    graph.patch(&path, &json!({ "appRoles": [role(false)] }));
    graph.patch(&path, &json!({ "appRoles": [] }));
    assert_eq!(graph.get(&path)["appRoles"], json!([]));
}

#[test]
fn unique_name_creates_or_updates_one_application() {
    let graph = GraphFixture::new();
    let path = "/applications(uniqueName='app-1')";
    let body = json!({ "displayName": "one" });
    assert_eq!(graph.fail("PATCH", path, &body), not_found("uniqueName='app-1'"));
    let upsert = |body: &Value| {
        let headers = [("prefer", "create-if-missing")];
        graph.send_with_headers(Caller::Administrator, "PATCH", path, body, &headers)
    };
    let created = upsert(&body);
    assert_eq!(created.status.as_u16(), 201);
    assert_eq!(upsert(&json!({ "displayName": "two" })).status.as_u16(), 204);
    let read = graph.get(path);
    assert_eq!(read["id"], reply_json(&created)["id"]);
    assert_eq!(json!([read["displayName"], read["uniqueName"]]), json!(["two", "app-1"]));
}

#[test]
fn added_password_authenticates_until_it_is_removed() {
    let graph = GraphFixture::new();
    let app = graph.post("/applications", &json!({ "displayName": "x" }));
    let path = format!("/applications/{}", id_of(&app));
    graph.post("/servicePrincipals", &json!({ "appId": app["appId"] }));
    let password = graph.post(
        &format!("{path}/addPassword"),
        &json!({ "passwordCredential": { "displayName": "rbac", "endDateTime": "2027-11-21T12:00:00Z" } }),
    );
    let secret = password["secretText"].as_str().unwrap();
    assert_eq!(secret.len(), 40);
    assert_eq!(password["hint"], secret[..3]);
    assert_eq!(
        json!([password["displayName"], password["startDateTime"], password["endDateTime"]]),
        json!(["rbac", "2026-11-21T12:00:00Z", "2027-11-21T12:00:00Z"])
    );
    let client = app["appId"].as_str().unwrap();
    let token = || graph.probe.request_token(&[("client_id", client), ("client_secret", secret)]);
    assert_eq!(token().status.as_u16(), 200);
    let stored = &graph.get(&path)["passwordCredentials"][0];
    assert_eq!(json!([stored["secretText"], stored["hint"]]), json!([null, secret[..3]]));
    graph.post(&format!("{path}/removePassword"), &json!({ "keyId": password["keyId"] }));
    assert_eq!(aadsts_code(&token()), Some(7_000_215));
    let key = password["keyId"].as_str().unwrap();
    assert_eq!(
        graph.fail("POST", &format!("{path}/removePassword"), &json!({ "keyId": key })),
        bad_request(&format!("No password credential found with keyId {key}."))
    );
    assert_eq!(
        graph.fail(
            "POST",
            &format!("{path}/addPassword"),
            &json!({ "passwordCredential": { "endDateTime": "2020-01-01T00:00:00Z" } })
        ),
        bad_request("Password credential end date is invalid.")
    );
    assert!(graph.post(&format!("{path}/addPassword"), &Value::Null)["secretText"].is_string());
}

#[test]
fn password_of_a_new_application_is_shown_once() {
    let graph = GraphFixture::new();
    let body = json!({ "displayName": "x", "passwordCredentials": [{ "displayName": "first" }] });
    let app = graph.post("/applications", &body);
    let shown = &app["passwordCredentials"][0];
    assert!(shown["secretText"].is_string());
    let path = format!("/applications/{}", id_of(&app));
    let stored = graph.get(&path);
    assert_eq!(stored["passwordCredentials"][0]["secretText"], Value::Null);
    assert_eq!(stored["passwordCredentials"][0]["keyId"], shown["keyId"]);
    let (_, _, message) =
        graph.fail("PATCH", &path, &json!({ "passwordCredentials": [{ "displayName": "new" }] }));
    assert!(message.contains("addPassword"), "{message}");
    graph.patch(&path, &json!({ "passwordCredentials": [] }));
    assert_eq!(graph.get(&path)["passwordCredentials"], json!([]));
}

#[test]
fn certificate_takes_name_thumbprint_and_dates_from_its_der() {
    let graph = GraphFixture::new();
    let der = certificate("CLI-Login");
    let mut folded = STANDARD.encode(&der);
    for at in (64..folded.len()).step_by(64).rev() {
        folded.insert(at, '\n');
    }
    let mut credential = key_credential(&der);
    credential["key"] = json!(folded);
    let app =
        graph.post("/applications", &json!({ "displayName": "x", "keyCredentials": [credential] }));
    let path = format!("/applications/{}", id_of(&app));
    let key = &app["keyCredentials"][0];
    assert_eq!(
        json!([
            key["customKeyIdentifier"],
            key["displayName"],
            key["key"],
            key["startDateTime"],
            key["endDateTime"]
        ]),
        json!([
            hex::encode_upper(sha1_thumbprint(&der)),
            "CN=CLI-Login",
            null,
            text_of_time(days_after(start_time(), -1)),
            text_of_time(days_after(start_time(), 90)),
        ])
    );
    let selected = graph.get(&format!("{path}?$select=id,keyCredentials"));
    assert_eq!(selected["keyCredentials"][0]["key"], STANDARD.encode(&der));
    // The Azure CLI appends a certificate by sending the others back.
    let other = certificate("other");
    let mut unchanged = key.clone();
    unchanged["key"] = Value::Null;
    graph.patch(&path, &json!({ "keyCredentials": [unchanged, key_credential(&other)] }));
    let names = graph.get(&path)["keyCredentials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["displayName"].clone())
        .collect::<Vec<_>>();
    assert_eq!(json!(names), json!(["CN=CLI-Login", "CN=other"]));
}

#[test]
fn invalid_key_credentials_are_rejected() {
    let graph = GraphFixture::new();
    let der = certificate("x");
    let app = graph.post(
        "/applications",
        &json!({ "displayName": "x", "keyCredentials": [key_credential(&der)] }),
    );
    let path = format!("/applications/{}", id_of(&app));
    let existing = app["keyCredentials"][0]["keyId"].clone();
    let with = |name: &str, value: Value| {
        let mut credential = key_credential(&der);
        credential[name] = value;
        credential
    };
    for (credentials, message) in [
        (vec![with("key", json!("bm8gY2VydGlmaWNhdGU="))], "Invalid certificate: Key value is invalid certificate".to_owned()),
        (vec![with("key", Value::Null)], "Invalid certificate: Key value is invalid certificate".to_owned()),
        (vec![with("endDateTime", json!("2099-01-01T00:00:00Z"))], "Key credential end date is invalid.".to_owned()),
        (vec![with("startDateTime", json!("2000-01-01T00:00:00Z"))], "Key credential start date is invalid.".to_owned()),
        (vec![with("usage", json!("x"))], "The value for the property \"usage\" in one of your credentials is invalid. Acceptable values are Sign, Verify.".to_owned()),
        (vec![with("keyId", json!("2f0c1b5e-0000-4000-8000-000000000001")), with("keyId", json!("2f0c1b5e-0000-4000-8000-000000000001"))],
            "The property keyCredentials contains more than one credential with keyId '2f0c1b5e-0000-4000-8000-000000000001'.".to_owned()),
        (vec![json!({ "keyId": existing, "endDateTime": "2026-12-01T00:00:00Z" })],
            format!("Update to existing credential with KeyId '{}' is not allowed.", existing.as_str().unwrap())),
    ] {
        assert_eq!(graph.fail("PATCH", &path, &json!({ "keyCredentials": credentials })), bad_request(&message));
    }
}

#[test]
fn keys_are_rolled_with_a_proof_of_possession() {
    let graph = GraphFixture::new();
    let id = Uuid::from_u128(0xb1).to_string();
    let path = format!("/applications/{id}");
    let now = start_time().as_second();
    let proof =
        |audience: &str, issuer: &str, ends: i64, key: &lanyard_emulator_state::keys::RsaKey| {
            let claims = json!({ "aud": audience, "iss": issuer, "nbf": now, "exp": ends });
            sign_token(&json!({ "alg": "RS256", "typ": "JWT" }), &claims, key)
        };
    let audience = "00000002-0000-0000-c000-000000000000";
    let good = proof(audience, &id, now + 600, &client_key());
    let body = |proof: &str| json!({ "keyCredential": key_credential(&certificate("new")), "passwordCredential": null, "proof": proof });
    for bad in [
        proof("00000003-0000-0000-c000-000000000000", &id, now + 600, &client_key()),
        proof(audience, APP, now + 600, &client_key()),
        proof(audience, &id, now + 86_400, &client_key()),
        proof(audience, &id, now + 600, &untrusted_key()),
        String::new(),
    ] {
        // The application needs no permission to roll its own keys.
        let reply = graph.send(Caller::Application, "POST", &format!("{path}/addKey"), &body(&bad));
        assert_eq!(error_of(&reply).1, "Authentication_MissingOrMalformed");
    }
    let reply = graph.send(Caller::Application, "POST", &format!("{path}/addKey"), &body(&good));
    assert_eq!(reply.status.as_u16(), 200, "{}", text(&reply));
    let key_id = reply_json(&reply)["keyId"].clone();
    assert_eq!(graph.get(&path)["keyCredentials"].as_array().unwrap().len(), 2);
    let body = json!({ "keyId": key_id, "proof": good });
    let reply = graph.send(Caller::Application, "POST", &format!("{path}/removeKey"), &body);
    assert_eq!(reply.status.as_u16(), 204, "{}", text(&reply));
    assert_eq!(graph.get(&path)["keyCredentials"].as_array().unwrap().len(), 1);
    let other = graph.post("/applications", &json!({ "displayName": "other" }));
    let path = format!("/applications/{}/addKey", id_of(&other));
    assert_eq!(error_of(&graph.send(Caller::Application, "POST", &path, &body)), denied());
}

#[test]
fn federated_credentials_are_found_by_id_and_by_name() {
    let graph = GraphFixture::new();
    let app = graph.post("/applications", &json!({ "displayName": "x" }));
    let path = format!("/applications/{}/federatedIdentityCredentials", id_of(&app));
    let credential = json!({
        "name": "workload",
        "issuer": "https://issuer.example.org/app",
        "subject": "system:serviceaccount:default:app",
        "audiences": ["api://AzureADTokenExchange"],
        "description": "tests",
    });
    let created = graph.post(&path, &credential);
    let id = id_of(&created);
    assert_eq!(
        created["@odata.context"],
        format!(
            "https://graph.microsoft.com/v1.0/$metadata#applications('{}')/federatedIdentityCredentials/$entity",
            id_of(&app)
        )
    );
    for key in ["workload".to_owned(), id.clone()] {
        assert_eq!(graph.get(&format!("{path}/{key}"))["subject"], credential["subject"], "{key}");
    }
    graph.patch(
        &format!("{path}/workload"),
        &json!({ "subject": "system:serviceaccount:default:other" }),
    );
    assert_eq!(graph.list(&path, "subject"), ["system:serviceaccount:default:other"]);
    assert_eq!(
        graph.list(
            &format!("{path}?$filter=subject eq 'system:serviceaccount:default:other'"),
            "name"
        ),
        ["workload"]
    );
    let upsert = |name: &str| {
        let body = json!({ "issuer": "https://i.test", "subject": name, "audiences": ["a"] });
        let path = format!("{path}(name='{name}')");
        let headers = [("prefer", "create-if-missing")];
        graph
            .send_with_headers(Caller::Administrator, "PATCH", &path, &body, &headers)
            .status
            .as_u16()
    };
    assert_eq!([upsert("other"), upsert("other")], [201, 204]);
    graph.delete(&format!("{path}/{id}"));
    assert_eq!(graph.list(&path, "name"), ["other"]);
    assert_eq!(graph.fail("GET", &format!("{path}/workload"), &Value::Null), not_found("workload"));
}

#[test]
fn invalid_federated_credentials_are_rejected() {
    let graph = GraphFixture::new();
    let app = graph.post("/applications", &json!({ "displayName": "x" }));
    let path = format!("/applications/{}/federatedIdentityCredentials", id_of(&app));
    let with = |changes: Value| {
        let mut credential = json!({ "name": "one-1", "issuer": "https://i.test", "subject": "s", "audiences": ["a"] });
        for (name, value) in changes.as_object().unwrap() {
            credential[name] = value.clone();
        }
        credential
    };
    graph.post(&path, &with(json!({})));
    for (changes, status, start) in [
        (json!({}), 409, "FederatedIdentityCredential with name one-1 already exists."),
        (
            json!({ "name": "two" }),
            400,
            "The combination of issuer and subject must be unique for the application. Issuer https://i.test and Subject: s already exist.",
        ),
        (json!({ "name": "x" }), 400, "A name has 3 to 120"),
        (json!({ "name": "a b c" }), 400, "A name has 3 to 120"),
        (json!({ "name": "two", "subject": "" }), 400, "subject has 1 to 600 characters."),
        (
            json!({ "name": "two", "subject": "x".repeat(601) }),
            400,
            "subject has 1 to 600 characters.",
        ),
        (
            json!({ "name": "two", "subject": "t", "description": "x".repeat(601) }),
            400,
            "description has 1 to 600 characters.",
        ),
        (
            json!({ "name": "two", "subject": "t", "issuer": "http://i.test" }),
            400,
            "Issuer must be an https URL.",
        ),
        (
            json!({ "name": "two", "subject": "t", "audiences": ["a", "b"] }),
            400,
            "Exactly one audience is required.",
        ),
        (
            json!({ "name": "two", "subject": "t", "claimsMatchingExpression": {} }),
            501,
            "The emulator implements",
        ),
    ] {
        let (found, _, message) = graph.fail("POST", &path, &with(changes.clone()));
        assert!(found == status && message.starts_with(start), "{changes}: {found} {message}");
    }
    let (_, _, message) =
        graph.fail("PATCH", &format!("{path}/one-1"), &json!({ "name": "other" }));
    assert_eq!(message, "Name is immutable and cannot be changed after creation.");
    for n in 1..20 {
        graph.post(&path, &with(json!({ "name": format!("name-{n}"), "subject": n.to_string() })));
    }
    let (status, _, message) =
        graph.fail("POST", &path, &with(json!({ "name": "name-20", "subject": "x" })));
    assert_eq!(status, 400);
    assert!(message.contains("limit of 20"), "{message}");
}

#[test]
fn service_principal_is_created_for_an_application_once() {
    let graph = GraphFixture::new();
    let app = graph
        .post("/applications", &json!({ "displayName": "web", "identifierUris": ["api://web"] }));
    let client = app["appId"].as_str().unwrap();
    let created =
        graph.post("/servicePrincipals", &json!({ "appId": client, "accountEnabled": true }));
    assert_eq!(
        json!([
            created["displayName"],
            created["servicePrincipalType"],
            created["accountEnabled"],
            created["appOwnerOrganizationId"],
            created["servicePrincipalNames"]
        ]),
        json!(["web", "Application", true, TENANT, [client, "api://web"]])
    );
    let id = id_of(&created);
    let path = format!("/servicePrincipals/{id}");
    for filter in [
        format!("appId eq '{client}'"),
        format!("servicePrincipalNames/any(c:c eq '{client}')"),
        "servicePrincipalNames/any(c:c eq 'api://web')".to_owned(),
        "displayName eq 'web'".to_owned(),
        "startswith(displayName,'we')".to_owned(),
    ] {
        assert_eq!(
            graph.list(&format!("/servicePrincipals?$filter={filter}"), "id"),
            [id.as_str()],
            "{filter}"
        );
    }
    assert_eq!(id_of(&graph.get(&format!("/servicePrincipals(appId='{client}')"))), id);
    assert_eq!(
        graph.fail("POST", "/servicePrincipals", &json!({ "appId": client })),
        (
            409,
            "Request_MultipleObjectsWithSameKeyValue".to_owned(),
            format!(
                "The service principal cannot be created, updated, or restored because the service principal name {client} is already in use."
            )
        )
    );
    let unknown = "00000000-1111-4222-8333-444444444444";
    assert_eq!(
        graph.fail("POST", "/servicePrincipals", &json!({ "appId": unknown })),
        bad_request(&format!(
            "The appId '{unknown}' of the service principal does not reference a valid application object."
        ))
    );
    graph.patch(
        &path,
        &json!({ "accountEnabled": false, "tags": ["HideApp"], "appRoleAssignmentRequired": true }),
    );
    let read = graph.get(&path);
    assert_eq!(
        json!([read["accountEnabled"], read["tags"], read["appRoleAssignmentRequired"]]),
        json!([false, ["HideApp"], true])
    );
    let token = graph.probe.request_token(&[("client_id", client), ("client_secret", "x")]);
    assert_eq!(aadsts_code(&token), Some(7_000_112));
    graph.patch(&format!("/applications/{}", id_of(&app)), &json!({ "displayName": "renamed" }));
    assert_eq!(graph.get(&path)["displayName"], "renamed");
    graph.delete(&path);
    assert_eq!(graph.fail("GET", &path, &Value::Null), not_found(&id));
}

#[test]
fn deleted_application_is_restored_with_its_service_principal() {
    let graph = GraphFixture::new();
    let app = id_of(&graph.get(&format!("/applications(appId='{APP}')")));
    let principal = id_of(&graph.get(&format!("/servicePrincipals(appId='{APP}')")));
    let token = || {
        graph.probe.request_token(&[
            ("client_id", APP),
            ("client_secret", lanyard_emulator::testing::SECRET),
        ])
    };
    assert_eq!(token().status.as_u16(), 200);
    graph.delete(&format!("/applications/{app}"));
    assert_eq!(aadsts_code(&token()), Some(700_016));
    assert_eq!(graph.list(&format!("/servicePrincipals?$filter=appId eq '{APP}'"), "id"), [""; 0]);
    assert_eq!(
        graph.list("/directory/deletedItems/microsoft.graph.application", "id"),
        [app.as_str()]
    );
    assert_eq!(
        graph.list("/directory/deletedItems/microsoft.graph.servicePrincipal", "id"),
        [principal.as_str()]
    );
    let deleted = graph.get(&format!("/directory/deletedItems/{app}"));
    assert_eq!(deleted["deletedDateTime"], text_of_time(start_time()));
    graph.post(&format!("/directory/deletedItems/{app}/restore"), &Value::Null);
    assert_eq!(token().status.as_u16(), 200);
    assert_eq!(id_of(&graph.get(&format!("/servicePrincipals(appId='{APP}')"))), principal);
    graph.delete(&format!("/applications/{app}"));
    graph.delete(&format!("/directory/deletedItems/{app}"));
    assert_eq!(
        graph.fail("GET", &format!("/directory/deletedItems/{app}"), &Value::Null),
        not_found(&app)
    );
}

#[test]
fn application_is_restored_with_its_last_service_principal() {
    let graph = GraphFixture::new();
    let app = graph.post("/applications", &json!({ "displayName": "x" }));
    let client = json!({ "appId": app["appId"] });
    let app = id_of(&app);
    let mut principals = Vec::new();
    for _ in 0..5 {
        let principal = id_of(&graph.post("/servicePrincipals", &client));
        graph.delete(&format!("/servicePrincipals/{principal}"));
        graph.probe.clock.advance(std::time::Duration::from_secs(1));
        principals.push(principal);
    }
    let last = id_of(&graph.post("/servicePrincipals", &client));
    graph.delete(&format!("/applications/{app}"));
    let restore =
        |id: &str| graph.post(&format!("/directory/deletedItems/{id}/restore"), &Value::Null);
    restore(&app);
    let path = format!("/servicePrincipals(appId='{}')", client["appId"].as_str().unwrap());
    assert_eq!(id_of(&graph.get(&path)), last);
    // A service principal that was restored before its application stays the only one.
    graph.delete(&format!("/applications/{app}"));
    restore(&principals[0]);
    restore(&app);
    assert_eq!(id_of(&graph.get(&path)), principals[0]);
    let found = graph.list("/servicePrincipals?$filter=displayName eq 'x'", "id");
    assert_eq!(found, [principals[0].as_str()]);
}

#[test]
fn application_is_not_restored_while_another_has_its_unique_values() {
    let graph = GraphFixture::new();
    let headers = [("prefer", "create-if-missing")];
    let upsert = |name: &str, uri: &str| {
        let path = format!("/applications(uniqueName='{name}')");
        let body = json!({ "displayName": "x", "identifierUris": [uri] });
        let reply = graph.send_with_headers(Caller::Administrator, "PATCH", &path, &body, &headers);
        assert_eq!(reply.status.as_u16(), 201, "{}", text(&reply));
        format!("/applications/{}", id_of(&reply_json(&reply)))
    };
    let deleted = upsert("one", "api://one");
    graph.delete(&deleted);
    let restore =
        format!("{}/restore", deleted.replace("/applications/", "/directory/deletedItems/"));
    for (name, uri, property) in
        [("two", "API://ONE", "identifierUris"), ("one", "api://two", "uniqueName")]
    {
        let other = upsert(name, uri);
        let (status, code, message) = graph.fail("POST", &restore, &Value::Null);
        assert_eq!(
            (status, code.as_str()),
            (400, "Request_MultipleObjectsWithSameKeyValue"),
            "{property}"
        );
        assert!(message.contains(property), "{message}");
        graph.delete(&other);
    }
    graph.post(&restore, &Value::Null);
    graph.get(&deleted);
}

#[test]
fn invalid_credentials_name_the_type_of_their_object() {
    let graph = GraphFixture::new();
    let app = graph.post("/applications", &json!({ "displayName": "x" }));
    let principal = graph.post("/servicePrincipals", &json!({ "appId": app["appId"] }));
    for (path, resource) in [
        (format!("/applications/{}", id_of(&app)), "Application"),
        (format!("/servicePrincipals/{}", id_of(&principal)), "ServicePrincipal"),
    ] {
        for property in ["keyCredentials", "passwordCredentials"] {
            let expected = bad_request(&format!(
                "Invalid value specified for property '{property}' of resource '{resource}'."
            ));
            assert_eq!(graph.fail("PATCH", &path, &json!({ (property): 1 })), expected);
        }
        let expected = bad_request(&format!(
            "Invalid value specified for property 'passwordCredential' of resource '{resource}'."
        ));
        let body = json!({ "passwordCredential": 1 });
        assert_eq!(graph.fail("POST", &format!("{path}/addPassword"), &body), expected);
    }
}

#[test]
fn deleted_application_stays_in_lists_until_the_deletion_is_replicated() {
    let graph = GraphFixture::new();
    graph.probe.engine.state().azure.directory.replication.delays.graph_deletion_seconds = 30;
    let app = id_of(&graph.get(&format!("/applications(appId='{APP}')")));
    let principal = id_of(&graph.get(&format!("/servicePrincipals(appId='{APP}')")));
    graph.delete(&format!("/applications/{app}"));
    let read = graph.fail("GET", &format!("/applications/{app}"), &Value::Null);
    assert_eq!(read, not_found(&app));
    let listed = || {
        let filter = format!("$filter=appId eq '{APP}'");
        [
            graph.list("/applications", "id").contains(&app),
            graph.list(&format!("/applications?{filter}"), "id") == [app.as_str()],
            graph.list("/servicePrincipals", "id").contains(&principal),
            graph.list(&format!("/servicePrincipals?{filter}"), "id") == [principal.as_str()],
        ]
    };
    assert_eq!(listed(), [true; 4]);
    graph.probe.clock.advance(std::time::Duration::from_secs(30));
    assert_eq!(listed(), [false; 4]);
    let member = MEMBER.to_string();
    graph.delete(&format!("/users/{member}"));
    assert_eq!(graph.list("/users", "id").len(), 2, "the deleted user is listed");
    graph.post(&format!("/directory/deletedItems/{member}/restore"), &Value::Null);
    assert_eq!(graph.list("/users", "id").len(), 2, "a restored object is listed once");
}

#[test]
fn deleted_objects_expire_after_thirty_days() {
    let graph = GraphFixture::new();
    let app = id_of(&graph.get(&format!("/applications(appId='{APP}')")));
    graph.delete(&format!("/applications/{app}"));
    let directory =
        || graph.probe.engine.state().azure.directory.deleted_objects().values().count();
    assert_eq!(directory(), 2);
    advance_days(&graph, 30);
    let now = days_after(start_time(), 30);
    graph.probe.engine.state().azure.directory.purge_expired(now);
    assert_eq!(directory(), 0);
}
