use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use lanyard_emulator_state::request::RequestScheme;

use super::*;

const fn test_operation(id: &'static str, method: Method, path: &'static str) -> ServiceOperation {
    ServiceOperation {
        id,
        method,
        path,
        support: OperationSupport::Full,
        handler: |_| Ok(ServiceReply::empty(StatusCode::OK)),
    }
}

const TEST_OPERATIONS: &[&[ServiceOperation]] = &[
    &[
        test_operation("Groups_List", Method::GET, "/subscriptions/{subscription}/resourceGroups"),
        test_operation(
            "Groups_Get",
            Method::GET,
            "/subscriptions/{subscription}/resourceGroups/{group}",
        ),
        test_operation(
            "Groups_Head",
            Method::HEAD,
            "/subscriptions/{subscription}/resourceGroups/{group}",
        ),
    ],
    &[test_operation(
        "Assignments_Put",
        Method::PUT,
        "/{*scope}/providers/Microsoft.Authorization/roleAssignments/{name}",
    )],
    &[
        test_operation("Things_List", Method::POST, "/things/{name}?comp=list&restype=box"),
        test_operation("Things_Copy", Method::POST, "/things/{name}?!comp&[x-source]"),
        test_operation("Things_Post", Method::POST, "/things/{name}?!comp"),
    ],
];

fn request(method: &Method, url: &str) -> ServiceRequest {
    let url = url::Url::parse(&format!("https://host.test{url}")).unwrap();
    ServiceRequest {
        method: method.clone(),
        scheme: RequestScheme::Https,
        host: "host.test".to_owned(),
        port: 443,
        client_ip: None,
        path: url.path().to_owned(),
        query: url.query_pairs().into_owned().collect(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    }
}

fn find_in_table(
    method: &Method,
    path: &str,
) -> Result<(&'static str, PathParameters<'static>), Option<&'static str>> {
    let request = request(method, path);
    let (id, PathParameters(values)) = find_for_request(&request)?;
    let values = values.into_iter().map(|(name, value)| (name, Cow::Owned(value.into_owned())));
    Ok((id, PathParameters(values.collect())))
}

fn find_for_request(
    request: &ServiceRequest,
) -> Result<(&'static str, PathParameters<'_>), Option<&'static str>> {
    let segments: Vec<_> = request.segments().collect();
    match RouteTable::new(TEST_OPERATIONS.iter().copied().flatten()).find(request, &segments) {
        OperationLookup::Found(row, parameters) => Ok((row.id, parameters)),
        OperationLookup::NotFound(nearest) => Err(nearest.map(|row| row.id)),
    }
}

#[test]
fn literals_ignore_case_and_parameters_keep_case() {
    let (id, parameters) =
        find_in_table(&Method::GET, "/SUBSCRIPTIONS/Sub-1/resourcegroups/My-Group").unwrap();
    assert_eq!(id, "Groups_Get");
    assert_eq!(parameters.value("subscription"), "Sub-1");
    assert_eq!(parameters.value("group"), "My-Group");
    assert_eq!(parameters.value("other"), "");
}

#[test]
fn only_a_changed_value_is_a_copy() {
    for (path, expected) in
        [("/things/a", Cow::Borrowed("a")), ("/things/a%2Fb", "a/b".to_owned().into())]
    {
        let request = request(&Method::POST, path);
        let (_, PathParameters(values)) = find_for_request(&request).unwrap();
        let [(_, value)] = &*values else { panic!("{path} has one value") };
        assert_eq!(*value, expected, "{path}");
        assert_eq!(
            matches!(value, Cow::Borrowed(_)),
            matches!(expected, Cow::Borrowed(_)),
            "{path}"
        );
    }
}

#[test]
fn wildcard_matches_any_number_of_segments() {
    let suffix = "providers/Microsoft.Authorization/roleAssignments/a";
    for scope in ["", "subscriptions/s", "subscriptions/s/resourceGroups/g/providers/A.B/c/d"] {
        let (id, parameters) = find_in_table(&Method::PUT, &format!("/{scope}/{suffix}")).unwrap();
        assert_eq!(id, "Assignments_Put");
        assert_eq!(parameters.value("scope"), scope);
        assert_eq!(parameters.value("name"), "a");
    }
    assert!(
        find_in_table(&Method::PUT, "/providers/Microsoft.Authorization/roleAssignments").is_err()
    );
}

#[test]
fn conditions_on_query_and_headers_select_the_operation() {
    let cases = [
        ("/things/a?comp=list&restype=box", Some("Things_List")),
        ("/things/a?COMP=List&restype=BOX", Some("Things_List")),
        ("/things/a?comp=list", None),
        ("/things/a", Some("Things_Post")),
        ("/things/a?restype=box", Some("Things_Post")),
        ("/things/a?comp=", None),
    ];
    for (url, expected) in cases {
        let found = find_in_table(&Method::POST, url).map(|(id, _)| id);
        assert_eq!(found.ok(), expected, "{url}");
    }
    let mut copy = request(&Method::POST, "/things/a");
    copy.headers.insert("x-source", HeaderValue::from_static("b"));
    let (id, parameters) = find_for_request(&copy).unwrap();
    assert_eq!((id, parameters.value("name")), ("Things_Copy", "a"));
}

#[test]
fn displayed_path_shows_the_conditions_that_a_client_sends() {
    let shown = |path| test_operation("Things", Method::GET, path).displayed_path();
    assert_eq!(shown("/things/{name}"), "/things/{name}");
    assert_eq!(shown("/?comp=list&!restype&type=a"), "/?comp=list&type=a");
    assert_eq!(shown("/{name}?!comp&[x-source]"), "/{name} with x-source");
}

#[test]
fn head_falls_back_to_get() {
    let head = |path| find_in_table(&Method::HEAD, path).map(|(id, _)| id);
    assert_eq!(head("/subscriptions/s/resourceGroups"), Ok("Groups_List"));
    assert_eq!(head("/subscriptions/s/resourceGroups/g"), Ok("Groups_Head"));
}

#[test]
fn unknown_operation_returns_the_nearest_one() {
    let nearest = |method: &Method, path: &str| find_in_table(method, path).map(|(id, _)| id);
    let delete = nearest(&Method::DELETE, "/subscriptions/s/resourceGroups/g");
    assert_eq!(delete, Err(Some("Groups_Get")));
    let put = nearest(&Method::PUT, "/providers/Microsoft.Authorization/roleAssignments/a/b");
    assert_eq!(put, Err(Some("Assignments_Put")));
    assert_eq!(nearest(&Method::GET, "/nothing/like/it"), Err(None));
}
