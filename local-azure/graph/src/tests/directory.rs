use lanyard_emulator::testing::{FEDERATED, MSI};
use lanyard_emulator_state::directory::DirectoryDelays;
use serde_json::json;

use super::*;

const PRINCIPAL: Uuid = Uuid::from_u128(0xc1);

fn create_group(graph: &GraphFixture, name: &str) -> String {
    let body = json!({ "displayName": name, "mailNickname": name, "mailEnabled": false, "securityEnabled": true });
    id_of(&graph.post("/groups", &body))
}

#[test]
fn user_is_created_read_changed_and_deleted() {
    let graph = GraphFixture::new();
    let name = format!("eve@{DOMAIN}");
    let body = json!({
        "userPrincipalName": name,
        "displayName": "Eve",
        "mailNickname": "eve",
        "accountEnabled": true,
        "passwordProfile": { "password": "Secret-password-1", "forceChangePasswordNextSignIn": false },
    });
    let created = graph.post("/users", &body);
    let id = id_of(&created);
    assert_eq!(created["userPrincipalName"], name);
    assert_eq!(created.get("accountEnabled"), None);
    assert_eq!(created.get("passwordProfile"), None);
    let selected = graph.get(&format!("/users/{name}?$select=id,accountEnabled,mailNickname"));
    assert_eq!(
        selected,
        json!({
            "@odata.context": "https://graph.microsoft.com/v1.0/$metadata#users(id,accountEnabled,mailNickname)/$entity",
            "id": id,
            "accountEnabled": true,
            "mailNickname": "eve",
        })
    );
    graph.patch(
        &format!("/users('{name}')"),
        &json!({ "accountEnabled": false, "jobTitle": "Engineer", "userPrincipalName": format!("eva@{DOMAIN}"), "passwordProfile": { "password": "Other-password-2" } }),
    );
    let read =
        graph.get(&format!("/users/EVA@{DOMAIN}?$select=jobTitle,accountEnabled,passwordProfile"));
    assert_eq!(
        json!([read["jobTitle"], read["accountEnabled"], read["passwordProfile"]]),
        json!(["Engineer", false, null])
    );
    assert_eq!(graph.fail("GET", &format!("/users/{name}"), &Value::Null), not_found(&name));
    let state = graph.probe.engine.state();
    assert_eq!(
        state.azure.directory.user(id.parse().unwrap()).unwrap().password.expose(),
        "Other-password-2"
    );
    drop(state);
    assert_eq!(
        graph.list(&format!("/users?$filter=userPrincipalName eq 'eva@{DOMAIN}'"), "id"),
        [id.as_str()]
    );
    graph.delete(&format!("/users/{id}"));
    assert_eq!(graph.list("/directory/deletedItems/microsoft.graph.user", "id"), [id.as_str()]);
    graph.post(&format!("/directory/deletedItems/{id}/restore"), &Value::Null);
    assert_eq!(id_of(&graph.get(&format!("/users/eva@{DOMAIN}"))), id);
}

#[test]
fn invalid_users_are_rejected() {
    let graph = GraphFixture::new();
    let with = |changes: Value| {
        let mut user = json!({
            "userPrincipalName": format!("eve@{DOMAIN}"),
            "displayName": "Eve",
            "mailNickname": "eve",
            "accountEnabled": true,
            "passwordProfile": { "password": "Secret-password-1" },
        });
        for (name, value) in changes.as_object().unwrap() {
            user[name] = value.clone();
        }
        user
    };
    for (changes, message) in [
        (
            json!({ "userPrincipalName": "eve@example.org" }),
            "The domain portion of the userPrincipalName property is invalid. You must use one of the verified domain names in your organization.",
        ),
        (
            json!({ "userPrincipalName": format!("e ve@{DOMAIN}") }),
            "Property userPrincipalName is invalid.",
        ),
        (
            json!({ "userPrincipalName": format!("ADA@{DOMAIN}") }),
            "Another object with the same value for property userPrincipalName already exists.",
        ),
        (
            json!({ "mailNickname": null }),
            "A value is required for property 'mailNickname' of resource 'User'.",
        ),
        (
            json!({ "accountEnabled": null }),
            "A value is required for property 'accountEnabled' of resource 'User'.",
        ),
        (
            json!({ "passwordProfile": null }),
            "A value is required for property 'passwordProfile' of resource 'User'.",
        ),
        (
            json!({ "passwordProfile": { "password": "password" } }),
            "The specified password does not comply with password complexity requirements. Please provide a different password.",
        ),
        (
            json!({ "passwordProfile": { "password": "Sh0rt!" } }),
            "The specified password does not comply with password complexity requirements. Please provide a different password.",
        ),
        (
            json!({ "userType": "Robot" }),
            "Invalid value specified for property 'userType' of resource 'User'.",
        ),
    ] {
        assert_eq!(
            graph.fail("POST", "/users", &with(changes.clone())),
            bad_request(message),
            "{changes}"
        );
    }
}

#[test]
fn signed_in_user_reads_itself_and_what_it_owns() {
    let graph = GraphFixture::new();
    let app = graph.post("/applications", &json!({ "displayName": "mine" }));
    let group = create_group(&graph, "team");
    let me = graph.get("/me");
    assert_eq!(
        json!([me["id"], me["userPrincipalName"]]),
        json!([ADMINISTRATOR, format!("ada@{DOMAIN}")])
    );
    let owned = graph.get("/me/ownedObjects");
    let mut types: Vec<_> = owned["value"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["id"].clone(), item["@odata.type"].clone()))
        .collect();
    types.sort_by_key(|(_, kind)| kind.to_string());
    assert_eq!(
        json!(types),
        json!([[app["id"], "#microsoft.graph.application"], [group, "#microsoft.graph.group"]])
    );
    assert_eq!(graph.list("/me/ownedObjects/microsoft.graph.application", "displayName"), ["mine"]);
    assert_eq!(graph.list("/me/memberOf", "displayName"), ["Global Administrator"]);
    let reply = graph.send(Caller::Application, "GET", "/me", &Value::Null);
    assert_eq!(
        error_of(&reply),
        (
            400,
            "BadRequest".to_owned(),
            "/me request is only valid with delegated authentication flow.".to_owned()
        )
    );
}

#[test]
fn empty_key_of_a_user_is_not_the_signed_in_user() {
    let graph = GraphFixture::new();
    for method in ["GET", "PATCH", "DELETE"] {
        assert_eq!(
            graph.fail(method, "/users('')", &json!({ "jobTitle": "none" })),
            not_found("''"),
            "{method}"
        );
    }
    for path in ["memberOf", "transitiveMemberOf", "ownedObjects", "appRoleAssignments"] {
        assert_eq!(
            graph.fail("GET", &format!("/users('')/{path}"), &Value::Null),
            not_found("''"),
            "{path}"
        );
    }
    assert_eq!(graph.get("/me")["id"], json!(ADMINISTRATOR));
}

#[test]
fn paths_address_objects_of_their_own_collection_only() {
    let graph = GraphFixture::new();
    let team = create_group(&graph, "team");
    let resource = graph_principal_id(&TENANT.parse().unwrap());
    let role = GraphPermission::UserReadAll.id();
    let body = json!({ "principalId": PRINCIPAL, "resourceId": resource, "appRoleId": role });
    for collection in ["users", "groups"] {
        let path = format!("/{collection}/{PRINCIPAL}/appRoleAssignments");
        let missing = not_found(&PRINCIPAL.to_string());
        assert_eq!(graph.fail("POST", &path, &body), missing, "{collection}");
        assert_eq!(graph.fail("GET", &path, &Value::Null), missing, "{collection}");
        let path = format!("/{collection}/{PRINCIPAL}/memberOf");
        assert_eq!(graph.fail("GET", &path, &Value::Null), missing, "{collection}");
    }
    graph.post(&format!("/servicePrincipals/{PRINCIPAL}/appRoleAssignments"), &body);
    let path = format!("/servicePrincipals/{team}/memberOf");
    assert_eq!(graph.fail("GET", &path, &Value::Null), not_found(&team));
    // The service principals of Microsoft's applications are no members of groups.
    assert_eq!(graph.list(&format!("/servicePrincipals/{resource}/memberOf"), "id"), [""; 0]);
}

#[test]
fn memberships_of_a_group_are_found_by_its_unique_name() {
    let graph = GraphFixture::new();
    let team = create_group(&graph, "team");
    let body = json!({
        "displayName": "inner", "mailNickname": "inner", "mailEnabled": false,
        "securityEnabled": true, "uniqueName": "inner-1",
    });
    let inner = id_of(&graph.post("/groups", &body));
    graph.post(&format!("/groups/{team}/members/$ref"), &reference(&inner));
    assert_eq!(graph.list("/groups(uniqueName='inner-1')/memberOf", "id"), [team.as_str()]);
    let groups = graph.post("/groups(uniqueName='inner-1')/getMemberGroups", &json!({}));
    assert_eq!(groups["value"], json!([team]));
    let missing = "/groups(uniqueName='other')/memberOf";
    assert_eq!(graph.fail("GET", missing, &Value::Null), not_found("uniqueName='other'"));
}

#[test]
fn memberships_of_a_new_object_are_not_found_before_its_replication() {
    let graph = GraphFixture::new();
    graph.probe.engine.state().azure.directory.replication.delays =
        DirectoryDelays { graph_seconds: 10, ..DirectoryDelays::default() };
    let team = create_group(&graph, "team");
    let path = format!("/groups/{team}/memberOf");
    assert_eq!(graph.fail("GET", &path, &Value::Null), not_found(&team));
    for collection in ["groups", "directoryObjects"] {
        // Changes reach the replica that created the object.
        let path = format!("/{collection}/{team}/getMemberGroups");
        assert_eq!(graph.post(&path, &json!({}))["value"], json!([]));
    }
    graph.probe.clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(graph.list(&path, "id"), [""; 0]);
}

#[test]
fn relations_of_permanently_removed_objects_are_removed() {
    let graph = GraphFixture::new();
    let app = graph.post("/applications", &json!({ "displayName": "gone" }));
    let principal = graph.post("/servicePrincipals", &json!({ "appId": app["appId"] }));
    let (app, principal) = (id_of(&app), id_of(&principal));
    let team = create_group(&graph, "team");
    let other = id_of(&graph.post("/applications", &json!({ "displayName": "other" })));
    let resource = graph_principal_id(&TENANT.parse().unwrap());
    for (id, member) in [(0xd1, &principal), (0xd2, &team)] {
        let mut state = graph.probe.engine.state();
        state.azure.directory.insert_directory_role_assignment(DirectoryRoleAssignment {
            id: Uuid::from_u128(id),
            principal_id: member.parse().unwrap(),
            role: DirectoryRole::DirectoryReaders,
            tenant: TENANT.parse().unwrap(),
        });
    }
    graph.post(&format!("/applications/{other}/owners/$ref"), &reference(&principal));
    graph.post(&format!("/groups/{team}/owners/$ref"), &reference(&principal));
    let role = GraphPermission::UserReadAll.id();
    let body = json!({ "principalId": principal, "resourceId": resource, "appRoleId": role });
    graph.post(&format!("/servicePrincipals/{principal}/appRoleAssignments"), &body);
    let relations = || {
        let state = graph.probe.engine.state();
        let directory = &state.azure.directory;
        [
            directory.app_role_assignments().len(),
            directory.directory_role_assignments().len(),
            directory.objects_owned_by(principal.parse().unwrap()).count(),
        ]
    };
    let before = relations();
    assert_eq!(before, [1, 3, 2]);
    graph.delete(&format!("/applications/{app}"));
    assert_eq!(relations(), before, "a deleted object can be restored");
    graph.delete(&format!("/directory/deletedItems/{principal}"));
    assert_eq!(relations(), [0, 2, 0]);
    graph.delete(&format!("/groups/{team}"));
    assert_eq!(relations(), [0, 1, 0]);
}

#[test]
fn groups_have_members_and_owners() {
    let graph = GraphFixture::new();
    let (team, inner) = (create_group(&graph, "team"), create_group(&graph, "inner"));
    let members = format!("/groups/{team}/members");
    let member = MEMBER.to_string();
    graph.post(&format!("{members}/$ref"), &reference(&inner));
    graph.post(&format!("/groups/{inner}/members/$ref"), &reference(&member));
    graph.post(&format!("{members}/$ref"), &reference(&PRINCIPAL.to_string()));
    assert_eq!(
        graph.list(&members, "@odata.type"),
        ["#microsoft.graph.servicePrincipal", "#microsoft.graph.group"]
    );
    assert_eq!(graph.list(&format!("{members}/microsoft.graph.group"), "id"), [inner.as_str()]);
    assert_eq!(graph.list(&format!("/groups/{team}/transitiveMembers"), "id").len(), 3);
    assert_eq!(
        graph.fail("POST", &format!("{members}/$ref"), &reference(&inner)),
        bad_request(
            "One or more added object references already exist for the following modified properties: 'members'."
        )
    );
    let application = Uuid::from_u128(0xb1);
    assert_eq!(
        graph.fail("POST", &format!("{members}/$ref"), &reference(&application.to_string())),
        bad_request(&format!(
            "The reference target 'Application_{application}' of type 'Application' is invalid for the 'members' reference."
        ))
    );
    let missing = Uuid::from_u128(0xffff).to_string();
    assert_eq!(
        graph.fail("POST", &format!("{members}/$ref"), &reference(&missing)),
        not_found(&missing)
    );
    for path in ["users", "directoryObjects"] {
        let groups = graph.post(
            &format!("/{path}/{member}/getMemberGroups"),
            &json!({ "securityEnabledOnly": false }),
        );
        let mut ids: Vec<_> = groups["value"].as_array().unwrap().clone();
        ids.sort_by_key(ToString::to_string);
        let mut expected = vec![json!(team), json!(inner)];
        expected.sort_by_key(ToString::to_string);
        assert_eq!(ids, expected, "{path}");
        let check = json!({ "groupIds": [team, missing] });
        assert_eq!(
            graph.post(&format!("/{path}/{member}/checkMemberGroups"), &check)["value"],
            json!([team])
        );
    }
    assert_eq!(graph.list(&format!("/users/{member}/memberOf"), "id"), [inner.as_str()]);
    assert_eq!(
        graph
            .list(&format!("/users/{member}/transitiveMemberOf/microsoft.graph.group"), "id")
            .len(),
        2
    );
    graph.delete(&format!("{members}/{inner}/$ref"));
    assert_eq!(
        graph.fail("DELETE", &format!("{members}/{inner}/$ref"), &Value::Null),
        not_found(&inner)
    );
    let owners = format!("/groups/{team}/owners");
    assert_eq!(graph.list(&owners, "id"), [ADMINISTRATOR.to_string()]);
    assert_eq!(
        graph.fail("DELETE", &format!("{owners}/{ADMINISTRATOR}/$ref"), &Value::Null),
        bad_request("The group must have at least one owner, hence this owner cannot be removed.")
    );
    graph.post(&format!("{owners}/$ref"), &reference(&member));
    graph.delete(&format!("{owners}/{ADMINISTRATOR}/$ref"));
    assert_eq!(graph.list(&owners, "id"), [member.as_str()]);
    assert_eq!(
        graph.list(&format!("{owners}/$ref"), "@odata.id"),
        [format!("{GRAPH}/v2/{TENANT}/directoryObjects/{member}/Microsoft.DirectoryServices.User")]
    );
    graph.delete(&format!("/groups/{team}"));
    assert_eq!(graph.fail("GET", &format!("/groups/{team}"), &Value::Null), not_found(&team));
}

#[test]
fn groups_are_created_with_members_and_found_by_name() {
    let graph = GraphFixture::new();
    let bind = |ids: &[Uuid]| {
        ids.iter().map(|id| format!("{GRAPH}/v1.0/directoryObjects/{id}")).collect::<Vec<_>>()
    };
    let body = json!({
        "displayName": "admins", "mailNickname": "admins", "mailEnabled": false, "securityEnabled": true,
        "owners@odata.bind": bind(&[MEMBER]), "members@odata.bind": bind(&[MEMBER, PRINCIPAL]),
    });
    let id = id_of(&graph.post("/groups", &body));
    let path = "/groups?$filter=displayName eq 'admins' and mailNickname eq 'admins'";
    assert_eq!(graph.list(path, "id"), [id.as_str()]);
    assert_eq!(graph.list(&format!("/groups/{id}/members"), "id").len(), 2);
    assert_eq!(graph.list(&format!("/groups/{id}/owners"), "id"), [MEMBER.to_string()]);
    graph.patch(
        &format!("/groups/{id}"),
        &json!({ "description": "d", "members@odata.bind": bind(&[ADMINISTRATOR]) }),
    );
    let expanded = graph.get(&format!("/groups/{id}?$expand=members($select=id)"));
    assert_eq!(
        json!([expanded["description"], expanded["members"].as_array().unwrap().len()]),
        json!(["d", 3])
    );
    for (changes, message) in [
        (
            json!({ "mailNickname": "" }),
            "A value is required for property 'mailNickname' of resource 'Group'.",
        ),
        (
            json!({ "mailEnabled": true }),
            "The service does not currently support writes of mail-enabled groups. Please ensure that the mail-enablement property is unset and the security-enablement property is set.",
        ),
    ] {
        let mut bad = body.clone();
        for (name, value) in changes.as_object().unwrap() {
            bad[name] = value.clone();
        }
        assert_eq!(graph.fail("POST", "/groups", &bad), bad_request(message), "{changes}");
    }
    let mut unified = body;
    unified["groupTypes"] = json!(["Unified"]);
    assert_eq!(graph.fail("POST", "/groups", &unified).0, 501);
}

#[test]
fn objects_of_any_type_are_found_by_id() {
    let graph = GraphFixture::new();
    let group = create_group(&graph, "team");
    let graph_principal = graph_principal_id(&TENANT.parse().unwrap());
    let ids = json!([ADMINISTRATOR, PRINCIPAL, group, graph_principal, Uuid::from_u128(0xffff)]);
    let all = graph.post("/directoryObjects/getByIds", &json!({ "ids": ids, "types": ["user", "group", "servicePrincipal", "directoryObjectPartnerReference"] }));
    let mut found: Vec<_> = all["value"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| {
            (
                object["@odata.type"].as_str().unwrap().to_owned(),
                object["displayName"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    found.sort();
    let expected = [
        ("group", "team"),
        ("servicePrincipal", "Microsoft Graph"),
        ("servicePrincipal", "probe"),
        ("user", "Ada"),
    ];
    assert_eq!(
        found,
        expected.map(|(kind, name)| (format!("#microsoft.graph.{kind}"), name.to_owned()))
    );
    let users = graph.post(
        "/directoryObjects/microsoft.graph.getByIds",
        &json!({ "ids": ids, "types": ["user"] }),
    );
    assert_eq!(values_of(&users, "displayName"), ["Ada"]);
    assert_eq!(graph.get(&format!("/directoryObjects/{group}"))["displayName"], "team");
    assert_eq!(
        graph.fail("POST", "/directoryObjects/getByIds", &json!({ "ids": ["x"] })),
        bad_request("Invalid GUID:x")
    );
}

#[test]
fn managed_identities_are_read_only_service_principals() {
    let graph = GraphFixture::new();
    let found = graph.get(&format!("/servicePrincipals?$filter=appId eq '{MSI}'"));
    let identity = &found["value"][0];
    assert_eq!(
        json!([
            identity["servicePrincipalType"],
            identity["alternativeNames"],
            identity["displayName"],
            identity["servicePrincipalNames"][0]
        ]),
        json!([
            "ManagedIdentity",
            [
                "isExplicit=True",
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/msi"
            ],
            "probe",
            MSI,
        ])
    );
    assert_eq!(
        graph.list("/servicePrincipals?$filter=servicePrincipalType eq 'ManagedIdentity'", "appId"),
        [MSI, FEDERATED]
    );
    let path = format!("/servicePrincipals/{}", id_of(identity));
    for (method, path) in [("DELETE", path.clone()), ("POST", format!("{path}/addPassword"))] {
        assert_eq!(graph.fail(method, &path, &Value::Null), denied(), "{path}");
    }
}

#[test]
fn service_principals_of_microsoft_are_constant() {
    let graph = GraphFixture::new();
    for (client, name) in [
        ("00000003-0000-0000-c000-000000000000", "Microsoft Graph"),
        ("cfa8b339-82a2-471a-a3c9-0fc0be7a4093", "Azure Key Vault"),
        ("797f4846-ba00-4fd7-ba43-dac1f8f63013", "Windows Azure Service Management API"),
        ("e406a681-f3d4-42a8-90b6-c2b029497af1", "Azure Storage"),
    ] {
        let found = graph.get(&format!("/servicePrincipals?$filter=appId eq '{client}'"));
        assert_eq!(values_of(&found, "displayName"), [name]);
        let id = id_of(&found["value"][0]);
        assert_eq!(
            graph.get(&format!("/servicePrincipals/{id}"))["appOwnerOrganizationId"],
            "f8cdef31-a31e-4b4a-93e4-5f571e91255a"
        );
        assert_eq!(graph.fail("DELETE", &format!("/servicePrincipals/{id}"), &Value::Null).0, 501);
    }
    let roles =
        graph.get("/servicePrincipals(appId='00000003-0000-0000-c000-000000000000')")["appRoles"]
            .clone();
    let read_all = roles
        .as_array()
        .unwrap()
        .iter()
        .find(|role| role["value"] == "Directory.Read.All")
        .unwrap();
    assert_eq!(read_all["id"], "7ab1d382-f21e-4acd-a863-ba3e13f7da61");
}

#[test]
fn owners_of_applications_are_users_and_service_principals() {
    let graph = GraphFixture::new();
    let app = id_of(&graph.post("/applications", &json!({ "displayName": "x" })));
    let owners = format!("/applications/{app}/owners");
    assert_eq!(graph.list(&owners, "id"), [ADMINISTRATOR.to_string()]);
    graph.post(&format!("{owners}/$ref"), &reference(&PRINCIPAL.to_string()));
    assert_eq!(
        graph.fail("POST", &format!("{owners}/$ref"), &reference(&PRINCIPAL.to_string())),
        bad_request(
            "One or more added object references already exist for the following modified properties: 'owners'."
        )
    );
    let group = create_group(&graph, "team");
    assert_eq!(
        graph.fail("POST", &format!("{owners}/$ref"), &reference(&group)),
        bad_request(&format!(
            "The reference target 'Group_{group}' of type 'Group' is invalid for the 'owners' reference."
        ))
    );
    assert_eq!(graph.fail("POST", &format!("{owners}/$ref"), &json!({})).1, "BadRequest");
    let expanded = graph.get(&format!("/applications/{app}?$expand=owners"));
    assert_eq!(expanded["owners"].as_array().unwrap().len(), 2);
    graph.delete(&format!("{owners}/{ADMINISTRATOR}/$ref"));
    assert_eq!(graph.list(&owners, "displayName"), ["probe"]);
    let missing = Uuid::from_u128(0xffff).to_string();
    assert_eq!(
        graph.fail("DELETE", &format!("{owners}/{missing}/$ref"), &Value::Null),
        not_found(&missing)
    );
    assert_eq!(graph.list(&format!("/servicePrincipals/{PRINCIPAL}/owners"), "id"), [""; 0]);
}
