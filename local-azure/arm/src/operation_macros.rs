//! Macros for tables of operations, also for those of the crates with resource providers.

/// The path of a resource type in a resource group.
#[macro_export]
macro_rules! rg {
    ($rest:expr) => {
        concat!("/subscriptions/{subscription}/resourceGroups/{group}/providers/", $rest)
    };
}

/// The path of a resource type in a subscription.
#[macro_export]
macro_rules! sub {
    ($rest:expr) => {
        concat!("/subscriptions/{subscription}/providers/", $rest)
    };
}

/// The operations of a type in a resource group: create or update, update, get, delete, and two lists.
#[macro_export]
macro_rules! resource_operations {
    ($id:literal, $type:literal) => {
        &[
            $crate::full!(
                concat!($id, "_ListAll"),
                GET,
                $crate::sub!($type),
                $crate::resource_reads::list_in_subscription
            ),
            $crate::full!(
                concat!($id, "_List"),
                GET,
                $crate::rg!($type),
                $crate::resource_reads::list_child_collection
            ),
            $crate::full!(
                concat!($id, "_CreateOrUpdate"),
                PUT,
                $crate::rg!(concat!($type, "/{name}")),
                $crate::resource_writes::put_resource
            ),
            $crate::full!(
                concat!($id, "_Update"),
                PATCH,
                $crate::rg!(concat!($type, "/{name}")),
                $crate::resource_writes::patch_resource
            ),
            $crate::full!(
                concat!($id, "_Get"),
                GET,
                $crate::rg!(concat!($type, "/{name}")),
                $crate::resource_reads::get_resource
            ),
            $crate::full!(
                concat!($id, "_Delete"),
                DELETE,
                $crate::rg!(concat!($type, "/{name}")),
                $crate::resource_writes::delete_resource
            ),
        ]
    };
}

/// The operations of a child type. The path names the parents.
#[macro_export]
macro_rules! child_operations {
    ($id:literal, $path:literal) => {
        &[
            $crate::full!(
                concat!($id, "_List"),
                GET,
                $crate::rg!($path),
                $crate::resource_reads::list_child_collection
            ),
            $crate::full!(
                concat!($id, "_CreateOrUpdate"),
                PUT,
                $crate::rg!(concat!($path, "/{child}")),
                $crate::resource_writes::put_resource
            ),
            $crate::full!(
                concat!($id, "_Update"),
                PATCH,
                $crate::rg!(concat!($path, "/{child}")),
                $crate::resource_writes::patch_resource
            ),
            $crate::full!(
                concat!($id, "_Get"),
                GET,
                $crate::rg!(concat!($path, "/{child}")),
                $crate::resource_reads::get_resource
            ),
            $crate::full!(
                concat!($id, "_Delete"),
                DELETE,
                $crate::rg!(concat!($path, "/{child}")),
                $crate::resource_writes::delete_resource
            ),
        ]
    };
}

/// A fully implemented operation.
#[macro_export]
macro_rules! full {
    ($id:expr, $method:ident, $path:expr, $handler:expr) => {
        lanyard_emulator_core::operations::ServiceOperation {
            id: $id,
            method: http::Method::$method,
            path: $path,
            support: lanyard_emulator_core::operations::OperationSupport::Full,
            handler: $handler,
        }
    };
}
