//! The handlers.

pub mod chat;
pub mod models;
pub mod service;
