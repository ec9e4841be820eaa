module form_uploads

go 1.21
