//! The store of a board in PostgreSQL: several boards on several machines share one schema of a database.
//!
//! - [`Postgres`] is the store.
//! - [`PostgresConfig`] says where the database is and how it is used.
//! - [`migrate`] makes the schema, or brings it to the version of this package.
//! - [`check`] reports on a database without writing to it.
//!
//! ```no_run
//! use callboard_postgres::{Migration, Postgres, PostgresConfig, migrate};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let config = PostgresConfig::from_url("postgres://callboard@db.example.com/callboard")?;
//! migrate(&config, &Migration::default()).await?;
//! let store = Postgres::connect_with(config).await?;
//! # drop(store);
//! # Ok::<(), callboard_postgres::ConnectError>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg(unix)]

mod batch;
mod config;
mod connect_error;
mod ear;
mod feed;
mod lane;
mod link;
mod notices;
mod operation;
mod password_file;
mod place;
mod readers;
mod reading;
mod report;
mod schema;
mod skipped;
mod store;
mod thread;
mod tls;
mod url;
mod watchers;

pub use config::PostgresConfig;
pub use connect_error::ConnectError;
pub use report::{Report, TableSize, check};
pub use schema::{Migrated, Migration, migrate};
pub use store::Postgres;
