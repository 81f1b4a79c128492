use lanyard_emulator_state::directory::EntraDirectory;
use serde_json::json;

use super::*;

const PRINCIPAL: Uuid = Uuid::from_u128(0xc1);

/// The status of a request of a caller.
fn status(graph: &GraphFixture, caller: Caller, method: &str, path: &str, body: &Value) -> u16 {
    graph.send(caller, method, path, body).status.as_u16()
}

#[test]
fn tokens_for_other_audiences_and_invalid_tokens_are_rejected() {
    let graph = GraphFixture::new();
    let url = format!("{GRAPH}/v1.0/me");
    let request = |authorization: &str| {
        error_of(&graph.probe.get(Ingress::Tunnel, &url, &[("authorization", authorization)]))
    };
    for audience in [
        "https://graph.microsoft.com",
        "https://graph.microsoft.com/",
        "00000003-0000-0000-c000-000000000000",
    ] {
        let token = graph.token(Caller::Member, audience);
        assert_eq!(request(&format!("Bearer {token}")).0, 200, "{audience}");
    }
    let arm = graph.token(Caller::Member, "https://management.azure.com/");
    for (authorization, message) in [
        (format!("Bearer {arm}"), "Access token validation failure. Invalid audience."),
        ("Bearer x".to_owned(), "IDX14100: JWT is not well formed."),
        ("Basic x".to_owned(), "Access token is empty."),
    ] {
        assert_eq!(
            request(&authorization),
            (401, "InvalidAuthenticationToken".to_owned(), message.to_owned())
        );
    }
    let token = graph.token(Caller::Member, GRAPH);
    advance_days(&graph, 2);
    assert_eq!(
        request(&format!("Bearer {token}")).2,
        "Lifetime validation failed, the token is expired."
    );
}

#[test]
fn errors_carry_the_ids_of_the_request() {
    let graph = GraphFixture::new();
    let reply = graph.send_with_headers(
        Caller::Member,
        "GET",
        "/users/unknown@example.org",
        &Value::Null,
        &[("client-request-id", "my-id")],
    );
    let inner = reply_json(&reply)["error"]["innerError"].clone();
    assert_eq!(inner["client-request-id"], "my-id");
    assert_eq!(inner["request-id"], reply.header("request-id").unwrap());
    assert_eq!(inner["date"], "2026-11-21T12:00:00");
    assert_eq!(reply.header("client-request-id"), Some("my-id"));
}

#[test]
fn only_versions_of_microsoft_graph_are_served() {
    let graph = GraphFixture::new();
    let bearer = format!("Bearer {}", graph.token(Caller::Member, GRAPH));
    for (version, expected) in [("v1.0", 200), ("beta", 200), ("V1.0", 200), ("v2.0", 400)] {
        let url = format!("{GRAPH}/{version}/me");
        let reply = graph.probe.get(Ingress::Tunnel, &url, &[("authorization", bearer.as_str())]);
        assert_eq!(reply.status.as_u16(), expected, "{version}");
    }
}

#[test]
fn application_without_permissions_has_no_access() {
    let graph = GraphFixture::new();
    for (method, path) in [
        ("GET", "/applications"),
        ("GET", "/applications/00000000-0000-0000-0000-0000000000b1"),
        ("POST", "/applications"),
        ("GET", "/servicePrincipals"),
        ("GET", "/users"),
        ("GET", "/groups"),
        ("GET", "/directory/deletedItems/microsoft.graph.application"),
        ("POST", "/directoryObjects/getByIds"),
    ] {
        let body = json!({ "displayName": "x", "ids": [] });
        assert_eq!(
            error_of(&graph.send(Caller::Application, method, path, &body)),
            denied(),
            "{method} {path}"
        );
    }
}

#[test]
fn permissions_of_applications_allow_their_operations_only() {
    let user = json!({
        "userPrincipalName": format!("eve@{DOMAIN}"), "displayName": "Eve", "mailNickname": "eve",
        "accountEnabled": true, "passwordProfile": { "password": "Secret-password-1" },
    });
    let group = json!({ "displayName": "g", "mailNickname": "g", "mailEnabled": false, "securityEnabled": true });
    let app = json!({ "displayName": "a" });
    let operations = [
        ("GET", "/applications", &Value::Null),
        ("POST", "/applications", &app),
        ("PATCH", "/applications/00000000-0000-0000-0000-0000000000b1", &app),
        ("GET", "/users", &Value::Null),
        ("POST", "/users", &user),
        ("GET", "/groups", &Value::Null),
        ("POST", "/groups", &group),
    ];
    for (permission, expected) in [
        (GraphPermission::ApplicationReadAll, "+------"),
        (GraphPermission::ApplicationReadWriteOwnedBy, "++-----"),
        (GraphPermission::ApplicationReadWriteAll, "+++----"),
        (GraphPermission::DirectoryReadAll, "+--+-+-"),
        (GraphPermission::DirectoryReadWriteAll, "+++++++"),
        (GraphPermission::UserReadAll, "---+---"),
        (GraphPermission::UserReadWriteAll, "---++--"),
        (GraphPermission::GroupReadAll, "-----+-"),
        (GraphPermission::GroupCreate, "------+"),
        (GraphPermission::GroupReadWriteAll, "-----++"),
        (GraphPermission::AppRoleAssignmentReadWriteAll, "-------"),
        (GraphPermission::RoleManagementReadWriteDirectory, "-------"),
    ] {
        let graph = GraphFixture::with_permissions(&[permission]);
        let found: String = operations
            .iter()
            .map(|(method, path, body)| {
                match status(&graph, Caller::Application, method, path, body) {
                    200..=299 => '+',
                    403 => '-',
                    other => panic!("{permission:?} {method} {path}: {other}"),
                }
            })
            .collect();
        assert_eq!(found, expected, "{permission:?}");
    }
}

#[test]
fn owned_by_permission_covers_what_the_application_created() {
    let graph = GraphFixture::with_permissions(&[GraphPermission::ApplicationReadWriteOwnedBy]);
    let created =
        graph.send(Caller::Application, "POST", "/applications", &json!({ "displayName": "mine" }));
    let app = reply_json(&created);
    let path = format!("/applications/{}", id_of(&app));
    assert_eq!(graph.list(&format!("{path}/owners"), "id"), [PRINCIPAL.to_string()]);
    let principal = graph.send(
        Caller::Application,
        "POST",
        "/servicePrincipals",
        &json!({ "appId": app["appId"] }),
    );
    assert_eq!(principal.status.as_u16(), 201, "{}", text(&principal));
    assert_eq!(
        status(&graph, Caller::Application, "POST", &format!("{path}/addPassword"), &Value::Null),
        200
    );
    let other = graph.post("/applications", &json!({ "displayName": "other" }));
    let other_path = format!("/applications/{}", id_of(&other));
    assert_eq!(status(&graph, Caller::Application, "GET", &other_path, &Value::Null), 200);
    for (method, path) in [("POST", format!("{other_path}/addPassword")), ("DELETE", other_path)] {
        assert_eq!(
            error_of(&graph.send(Caller::Application, method, &path, &Value::Null)),
            denied()
        );
    }
    let unknown = json!({ "appId": "00000000-1111-4222-8333-444444444444" });
    let (code, _, message) =
        error_of(&graph.send(Caller::Application, "POST", "/servicePrincipals", &unknown));
    assert_eq!(code, 403);
    assert!(
        message.contains("service principal being created must in the local tenant"),
        "{message}"
    );
    assert_eq!(status(&graph, Caller::Application, "DELETE", &path, &Value::Null), 204);
}

#[test]
fn users_register_applications_and_change_only_their_own() {
    let graph = GraphFixture::new();
    let mine =
        graph.send(Caller::Member, "POST", "/applications", &json!({ "displayName": "mine" }));
    let mine = format!("/applications/{}", id_of(&reply_json(&mine)));
    let other = format!(
        "/applications/{}",
        id_of(&graph.post("/applications", &json!({ "displayName": "other" })))
    );
    let user = format!("/users/{ADMINISTRATOR}");
    for (method, path, body, expected) in [
        ("GET", "/users", Value::Null, 200),
        ("GET", "/servicePrincipals", Value::Null, 200),
        ("GET", user.as_str(), Value::Null, 200),
        ("PATCH", mine.as_str(), json!({ "tags": ["t"] }), 204),
        ("PATCH", other.as_str(), json!({ "tags": ["t"] }), 403),
        ("DELETE", other.as_str(), Value::Null, 403),
        ("PATCH", user.as_str(), json!({ "displayName": "x" }), 403),
        ("DELETE", user.as_str(), Value::Null, 403),
        ("POST", "/users", json!({}), 403),
        ("DELETE", mine.as_str(), Value::Null, 204),
    ] {
        assert_eq!(
            status(&graph, Caller::Member, method, path, &body),
            expected,
            "{method} {path}"
        );
    }
}

#[test]
fn member_may_own_250_objects() {
    let graph = GraphFixture::new();
    let create =
        || graph.send(Caller::Member, "POST", "/applications", &json!({ "displayName": "x" }));
    let first = reply_json(&create());
    for _ in 1..250 {
        assert_eq!(create().status.as_u16(), 201);
    }
    let (code, error, _) = error_of(&create());
    assert_eq!((code, error.as_str()), (403, "Directory_QuotaExceeded"));
    // A deleted object counts until it is deleted permanently.
    let id = id_of(&first);
    assert_eq!(
        status(&graph, Caller::Member, "DELETE", &format!("/applications/{id}"), &Value::Null),
        204
    );
    assert_eq!(create().status.as_u16(), 403);
    let path = format!("/directory/deletedItems/{id}");
    assert_eq!(status(&graph, Caller::Member, "DELETE", &path, &Value::Null), 204);
    assert_eq!(create().status.as_u16(), 201);
    graph.post("/applications", &json!({ "displayName": "administrator" }));
}

#[test]
fn app_role_assignment_gives_a_permission_and_its_removal_takes_it() {
    let graph = GraphFixture::new();
    let resource = graph_principal_id(&TENANT.parse().unwrap());
    let role = GraphPermission::UserReadAll.id();
    let body = json!({ "principalId": PRINCIPAL, "resourceId": resource, "appRoleId": role });
    let users = || status(&graph, Caller::Application, "GET", "/users", &Value::Null);
    assert_eq!(users(), 403);
    let path = format!("/servicePrincipals/{PRINCIPAL}/appRoleAssignments");
    assert_eq!(status(&graph, Caller::Member, "POST", &path, &body), 403);
    let assignment = graph.post(&path, &body);
    assert_eq!(
        json!([
            assignment["principalType"],
            assignment["principalDisplayName"],
            assignment["resourceDisplayName"]
        ]),
        json!(["ServicePrincipal", "probe", "Microsoft Graph"])
    );
    assert_eq!(users(), 200);
    let url = format!("{GRAPH}/v1.0/users");
    let request = |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        graph.probe.get(Ingress::Tunnel, &url, &headers).status.as_u16()
    };
    let token = graph.token(Caller::Application, GRAPH);
    assert_eq!(
        graph.fail("POST", &path, &body),
        bad_request("Permission being assigned already exists on the object")
    );
    let assigned_to = format!("/servicePrincipals/{resource}/appRoleAssignedTo");
    assert_eq!(graph.list(&assigned_to, "id"), [id_of(&assignment)]);
    graph.delete(&format!("{path}/{}", id_of(&assignment)));
    assert_eq!(users(), 403);
    // A token has the permissions of the time when it was issued.
    assert_eq!(request(&token), 200);
    let mut unknown = body;
    unknown["appRoleId"] = json!(Uuid::from_u128(0xffff));
    assert_eq!(
        graph.fail("POST", &assigned_to, &unknown),
        bad_request(
            "Permission being assigned was not found on application '00000003-0000-0000-c000-000000000000'."
        )
    );
}

#[test]
fn delegated_permissions_narrow_the_rights_of_the_user() {
    let graph = GraphFixture::new();
    let app = json!({ "displayName": "a" });
    let group = json!({ "displayName": "g", "mailNickname": "g", "mailEnabled": false, "securityEnabled": true });
    let operations = [
        ("GET", "/me", &Value::Null),
        ("GET", "/applications", &Value::Null),
        ("POST", "/applications", &app),
        ("GET", "/users", &Value::Null),
        ("GET", "/groups", &Value::Null),
        ("POST", "/groups", &group),
    ];
    for (scopes, expected) in [
        ("User.Read", "+-----"),
        ("User.Read Directory.AccessAsUser.All", "++++++"),
        ("Application.ReadWrite.All User.Read.All", "++++--"),
        ("Directory.Read.All", "++-++-"),
        ("Group.ReadWrite.All", "+---++"),
        ("Unknown.Read.All", "+-----"),
    ] {
        let found: String = operations
            .iter()
            .map(|(method, path, body)| {
                match status(&graph, Caller::AdministratorWith(scopes), method, path, body) {
                    200..=299 => '+',
                    403 => '-',
                    other => panic!("{scopes} {method} {path}: {other}"),
                }
            })
            .collect();
        assert_eq!(found, expected, "{scopes}");
    }
}

#[test]
fn directory_role_gives_its_rights() {
    let graph = GraphFixture::new();
    let create = |name: &str| {
        let user = json!({
            "userPrincipalName": format!("{name}@{DOMAIN}"), "displayName": name, "mailNickname": name,
            "accountEnabled": true, "passwordProfile": { "password": "Secret-password-1" },
        });
        status(&graph, Caller::Member, "POST", "/users", &user)
    };
    assert_eq!(create("eve"), 403);
    let assignment = Uuid::from_u128(0xd1);
    let directory = |change: &dyn Fn(&mut EntraDirectory)| {
        change(&mut graph.probe.engine.state().azure.directory);
    };
    directory(&|directory| {
        directory.insert_directory_role_assignment(DirectoryRoleAssignment {
            id: assignment,
            principal_id: MEMBER,
            role: DirectoryRole::UserAdministrator,
            tenant: TENANT.parse().unwrap(),
        });
    });
    assert_eq!(create("eve"), 201);
}

#[test]
fn objects_that_the_caller_may_not_read_have_type_and_id_only() {
    let graph = GraphFixture::with_permissions(&[GraphPermission::UserReadAll]);
    let body = json!({ "ids": [ADMINISTRATOR, PRINCIPAL] });
    let reply = graph.send(Caller::Application, "POST", "/directoryObjects/getByIds", &body);
    let found = reply_json(&reply);
    let object = |id: Uuid| {
        let mut objects = found["value"].as_array().unwrap().iter();
        objects.find(|object| object["id"] == json!(id)).unwrap().clone()
    };
    assert_eq!(object(ADMINISTRATOR)["displayName"], "Ada");
    assert_eq!(
        object(PRINCIPAL),
        json!({ "@odata.type": "#microsoft.graph.servicePrincipal", "id": PRINCIPAL, "displayName": null })
    );
}

#[test]
fn objects_of_other_tenants_do_not_exist() {
    let graph = GraphFixture::new();
    let other: lanyard_vocabulary::EntraTenantId =
        "99999999-0000-4000-8000-000000000001".parse().unwrap();
    {
        let state = &mut *graph.probe.engine.state();
        let mut user = state.azure.directory.user(MEMBER).unwrap().clone();
        user.tenant = other.clone();
        state.azure.directory.insert_user(user);
        let mut app = state.azure.directory.application(Uuid::from_u128(0xb1)).unwrap().clone();
        app.tenant = other;
        state.azure.directory.insert_application(app);
    }
    let member = MEMBER.to_string();
    assert_eq!(graph.fail("GET", &format!("/users/{member}"), &Value::Null), not_found(&member));
    assert_eq!(graph.list("/users", "displayName"), ["Ada"]);
    assert_eq!(graph.list(&format!("/applications?$filter=appId eq '{APP}'"), "id"), [""; 0]);
    let found = graph.post("/directoryObjects/getByIds", &json!({ "ids": [member] }));
    assert_eq!(found["value"], json!([]));
}

#[test]
fn caller_that_was_deleted_has_no_identity() {
    let graph = GraphFixture::with_permissions(&[GraphPermission::DirectoryReadAll]);
    let bearer = format!("Bearer {}", graph.token(Caller::Application, GRAPH));
    graph.delete(&format!("/servicePrincipals/{PRINCIPAL}"));
    let url = format!("{GRAPH}/v1.0/users");
    let reply = graph.probe.get(Ingress::Tunnel, &url, &[("authorization", bearer.as_str())]);
    assert_eq!(error_of(&reply).1, "Authorization_IdentityNotFound");
}

#[test]
fn deleted_objects_need_the_permission_to_read_their_type() {
    let user = MEMBER.to_string();
    for (permission, expected) in [
        (GraphPermission::UserReadAll, [403, 200]),
        (GraphPermission::ApplicationReadAll, [200, 403]),
    ] {
        let graph = GraphFixture::with_permissions(&[permission]);
        let app = id_of(&graph.post("/applications", &json!({ "displayName": "x" })));
        graph.delete(&format!("/users/{user}"));
        graph.delete(&format!("/applications/{app}"));
        let found = [&app, &user].map(|id| {
            let path = format!("/directory/deletedItems/{id}");
            status(&graph, Caller::Application, "GET", &path, &Value::Null)
        });
        assert_eq!(found, expected, "{permission:?}");
    }
}

#[test]
fn permission_and_object_are_checked_before_the_content() {
    let graph = GraphFixture::new();
    let other = graph.post("/applications", &json!({ "displayName": "other" }));
    let other = format!("/applications/{}", id_of(&other));
    let principal = format!("/servicePrincipals/{PRINCIPAL}");
    let group = json!({ "displayName": "g", "mailNickname": "g", "mailEnabled": false, "securityEnabled": true });
    let group = format!("/groups/{}", id_of(&graph.post("/groups", &group)));
    let missing = Uuid::from_u128(0xffff).to_string();
    let malformed = json!([]);
    for (method, path) in [
        ("POST", "/applications".to_owned()),
        ("PATCH", other.clone()),
        ("POST", format!("{other}/federatedIdentityCredentials")),
        ("PATCH", format!("{other}/federatedIdentityCredentials/x")),
        ("POST", "/servicePrincipals".to_owned()),
        ("PATCH", principal.clone()),
        ("POST", format!("{principal}/appRoleAssignments")),
        ("PATCH", group),
        ("PATCH", format!("/users/{ADMINISTRATOR}")),
    ] {
        let reply = graph.send(Caller::Application, method, &path, &malformed);
        assert_eq!(error_of(&reply), denied(), "{method} {path}");
    }
    for (method, path) in [
        ("PATCH", format!("/applications/{missing}")),
        ("POST", format!("/applications/{missing}/federatedIdentityCredentials")),
        ("PATCH", format!("/servicePrincipals/{missing}")),
        ("POST", format!("/servicePrincipals/{missing}/appRoleAssignments")),
        ("PATCH", format!("/groups/{missing}")),
        ("PATCH", format!("/users/{missing}")),
        ("POST", format!("/users/{missing}/checkMemberGroups")),
    ] {
        assert_eq!(graph.fail(method, &path, &malformed), not_found(&missing), "{method} {path}");
    }
}
