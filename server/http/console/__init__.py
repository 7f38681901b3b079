"""The console: pages for a browser that show the database and run SQL, without the internet."""
