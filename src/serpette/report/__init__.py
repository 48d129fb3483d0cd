"""What people see: terminal tables, charts, and one self-contained HTML page. Free of torch."""
