//! The handlers.

pub mod generate;
pub mod models;
pub mod page;
pub mod service;
pub mod stored;
pub mod tokens;
