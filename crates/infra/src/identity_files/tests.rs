use super::*;

fn id(number: u32) -> String {
    format!("00000000-0000-0000-0000-{number:012}")
}

fn control_plane_json(indent: &str) -> String {
    let mut lines: Vec<_> = control_plane_components()
        .enumerate()
        .map(|(number, component)| {
            let id = id(u32::try_from(number).unwrap());
            format!("{indent}\"{component}\": {{\"certificateName\": \"c\", \"clientID\": \"{id}\", \"credentialsSecretName\": \"{component}-json\", \"objectEncoding\": \"utf-8\"}}")
        })
        .collect();
    lines.push(format!(
        "{indent}\"managedIdentitiesKeyVault\": {{\"name\": \"vault\", \"tenantID\": \"{}\"}}",
        id(99)
    ));
    format!("{{\n{}\n}}", lines.join(",\n"))
}

#[test]
fn control_plane_file_is_read_in_both_forms_and_written_in_the_inner_one() {
    let (inner, data_plane, notes) =
        ControlPlaneIdentities::parse(&control_plane_json("")).unwrap();
    assert!(data_plane.is_none() && notes.is_empty());
    assert_eq!(inner.identities.len(), 8);
    let data_plane = format!(
        "{{\"imageRegistryMSIClientID\": \"{}\", \"diskMSIClientID\": \"{}\", \"fileMSIClientID\": \"{}\"}}",
        id(7),
        id(8),
        id(9)
    );
    let wrapped =
        format!("{{\"controlPlane\": {}, \"dataPlane\": {data_plane}}}", control_plane_json("  "));
    let (same, data_plane, notes) = ControlPlaneIdentities::parse(&wrapped).unwrap();
    assert_eq!((&same, notes.len()), (&inner, 1));
    assert_eq!(data_plane.unwrap().0.len(), 3);
    let (written, _, notes) = ControlPlaneIdentities::parse(&inner.to_json()).unwrap();
    assert_eq!((written, notes), (inner, vec![]));
}

#[test]
fn shared_ids_and_secrets_and_other_encodings_are_noted() {
    let text = control_plane_json("")
        .replace(&id(1), &id(0))
        .replace("\"network-json\"", "\"disk-json\"")
        .replacen("utf-8", "hex", 1);
    let (_, _, notes) = ControlPlaneIdentities::parse(&text).unwrap();
    let fields: Vec<_> = notes.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "nodePoolManagement.clientID",
            "cloudProvider.objectEncoding",
            "disk.credentialsSecretName"
        ]
    );
}

#[test]
fn every_problem_of_a_control_plane_file_is_named() {
    let text = control_plane_json("")
        .replace("\"disk-json\"", "\"disk_json\"")
        .replace("\"network\"", "\"netwrok\"")
        .replace(&id(0), "x");
    let IdentityFileError::Fields(problems) = ControlPlaneIdentities::parse(&text).unwrap_err()
    else {
        panic!("syntax error");
    };
    let fields: Vec<_> = problems.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(
        fields,
        ["cloudProvider.clientID", "network", "disk.credentialsSecretName", "netwrok"]
    );
}

#[test]
fn unquoted_ids_of_the_script_are_read_with_a_note() {
    let text = format!(
        "{{\n  \"imageRegistryMSIClientID\": {0},\n  \"diskMSIClientID\": {0},\n  \"fileMSIClientID\": {0}\n}}",
        "1e512345-0000-0000-0000-000000000000"
    );
    let (ids, notes) = DataPlaneIdentities::parse(&text).unwrap();
    // Two fields repeat the id of another one.
    assert_eq!((ids.0.len(), notes.len()), (3, 3));
    assert_eq!(
        ids.to_json(),
        "{\n  \"diskMSIClientID\": \"1e512345-0000-0000-0000-000000000000\",\n  \"fileMSIClientID\": \"1e512345-0000-0000-0000-000000000000\",\n  \"imageRegistryMSIClientID\": \"1e512345-0000-0000-0000-000000000000\"\n}"
    );
    let (same, notes) = DataPlaneIdentities::parse(&ids.to_json()).unwrap();
    assert_eq!((same, notes.len()), (ids, 2));
    let error = DataPlaneIdentities::parse("{fileMSIClientID: x}").unwrap_err().to_string();
    assert!(error.contains("`diskMSIClientID` is missing"), "{error}");
}

#[test]
fn workload_identities_are_written_as_by_hypershift() {
    let ids = workload_identities(true)
        .enumerate()
        .map(|(number, it)| (it.component, id(u32::try_from(number).unwrap()).parse().unwrap()));
    let identities = WorkloadIdentities(ids.collect());
    let json = identities.to_json();
    let expected = format!(
        "{{\n  \"imageRegistry\": {{\n    \"clientID\": \"{}\"\n  }},\n  \"ingress\": {{\n    \"clientID\": \"{}\"\n  }},\n",
        id(0),
        id(1)
    );
    assert!(json.starts_with(&expected), "{json}");
    let end = format!("  \"kmsClientID\": \"{}\"\n}}", id(8));
    assert!(json.ends_with(&end), "{json}");
    assert_eq!(WorkloadIdentities::parse(&json).unwrap(), (identities, vec![]));
}

#[test]
fn fields_of_the_documentation_are_ignored_with_a_note() {
    let ids = workload_identities(false).enumerate().map(|(number, it)| {
        let id = id(u32::try_from(number).unwrap());
        format!("\"{}\": {{\"clientID\": \"{id}\", \"tenantID\": \"t\"}}", it.component)
    });
    let text = format!("{{{}}}", ids.collect::<Vec<_>>().join(","));
    let (identities, notes) = WorkloadIdentities::parse(&text).unwrap();
    assert_eq!((identities.0.len(), notes.len()), (8, 8));
    let error = WorkloadIdentities::parse("{disk: {}, dsik: {}}").unwrap_err().to_string();
    assert!(error.contains("`disk.clientID` is missing"), "{error}");
    assert!(error.contains("`dsik` is not the name of a component"), "{error}");
}
