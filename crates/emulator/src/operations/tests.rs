use http::StatusCode;

use super::*;

const fn row(id: &'static str, method: Method, path: &'static str) -> Operation {
    Operation {
        id,
        method,
        path,
        support: Support::Full,
        handler: |_| Ok(Reply::empty(StatusCode::OK)),
    }
}

const TABLE: &[&[Operation]] = &[
    &[
        row("Groups_List", Method::GET, "/subscriptions/{subscription}/resourceGroups"),
        row("Groups_Get", Method::GET, "/subscriptions/{subscription}/resourceGroups/{group}"),
        row("Groups_Head", Method::HEAD, "/subscriptions/{subscription}/resourceGroups/{group}"),
    ],
    &[row(
        "Assignments_Put",
        Method::PUT,
        "/{*scope}/providers/Microsoft.Authorization/roleAssignments/{name}",
    )],
];

fn found(method: &Method, path: &str) -> Result<(&'static str, Parameters), Option<&'static str>> {
    let segments: Vec<_> =
        path.split('/').filter(|part| !part.is_empty()).map(ToOwned::to_owned).collect();
    match lookup(TABLE, method, &segments) {
        Lookup::Known(row, parameters) => Ok((row.id, parameters)),
        Lookup::Unknown(nearest) => Err(nearest.map(|row| row.id)),
    }
}

#[test]
fn literals_ignore_case_and_values_keep_it() {
    let (id, parameters) =
        found(&Method::GET, "/SUBSCRIPTIONS/Sub-1/resourcegroups/My-Group").unwrap();
    assert_eq!(id, "Groups_Get");
    assert_eq!(parameters.value("subscription"), "Sub-1");
    assert_eq!(parameters.value("group"), "My-Group");
    assert_eq!(parameters.value("other"), "");
}

#[test]
fn a_scope_is_any_number_of_segments_also_none() {
    let suffix = "providers/Microsoft.Authorization/roleAssignments/a";
    for scope in ["", "subscriptions/s", "subscriptions/s/resourceGroups/g/providers/A.B/c/d"] {
        let (id, parameters) = found(&Method::PUT, &format!("/{scope}/{suffix}")).unwrap();
        assert_eq!(id, "Assignments_Put");
        assert_eq!(parameters.value("scope"), scope);
        assert_eq!(parameters.value("name"), "a");
    }
    assert!(found(&Method::PUT, "/providers/Microsoft.Authorization/roleAssignments").is_err());
}

#[test]
fn head_is_get_unless_the_table_has_its_own_row() {
    let head = |path| found(&Method::HEAD, path).map(|(id, _)| id);
    assert_eq!(head("/subscriptions/s/resourceGroups"), Ok("Groups_List"));
    assert_eq!(head("/subscriptions/s/resourceGroups/g"), Ok("Groups_Head"));
}

#[test]
fn what_is_unknown_names_its_nearest_neighbour() {
    let nearest = |method: &Method, path: &str| found(method, path).map(|(id, _)| id);
    let delete = nearest(&Method::DELETE, "/subscriptions/s/resourceGroups/g");
    assert_eq!(delete, Err(Some("Groups_Head")));
    let put = nearest(&Method::PUT, "/providers/Microsoft.Authorization/roleAssignments/a/b");
    assert_eq!(put, Err(Some("Assignments_Put")));
    assert_eq!(nearest(&Method::GET, "/nothing/like/it"), Err(None));
}

#[test]
fn every_table_has_unique_ids_and_paths_that_can_be_reached() {
    for service in Service::ALL {
        let rows: Vec<_> = crate::services::operations(service).iter().copied().flatten().collect();
        for (at, row) in rows.iter().enumerate() {
            let before = &rows[..at];
            assert!(before.iter().all(|other| other.id != row.id), "{service:?}: {}", row.id);
            assert!(
                !before.iter().any(|other| other.method == row.method && other.path == row.path),
                "{service:?}: {} is hidden",
                row.id
            );
            assert!(row.path.starts_with('/'), "{}", row.id);
        }
    }
}
