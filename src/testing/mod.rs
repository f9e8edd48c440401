//! The test kit: what users need to test their own agents, trees and storage backends.

pub mod conformance;
pub mod golden;
